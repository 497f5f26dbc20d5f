// SPDX-License-Identifier: MIT
// Softmax cross-entropy with label smoothing (Szegedy et al. 2016), as torch.nn.functional.cross_entropy.
#pragma once

#include "fused/math/portable.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

/// Loss of a row from its log-sum-exp, the target's logit and the mean of all logits.
template <class T>
DNNSUITE_HD T row_cross_entropy(T log_sum, T target_logit, T mean_logit, T smoothing) {
    return log_sum - (T(1) - smoothing) * target_logit - smoothing * mean_logit;
}

/// Amount by which d loss / d logit is below the class's probability: (1 - smoothing) [class = target] + smoothing / C.
template <class T>
DNNSUITE_HD T target_probability(bool is_target, T smoothing, T classes) {
    return (is_target ? T(1) - smoothing : T(0)) + smoothing / classes;
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
