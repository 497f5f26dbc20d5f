// SPDX-License-Identifier: MIT
// Parts that the update rules share. A rule has kStates tensors, kScalars numbers per model and kHypers hyper-parameters, a
// constructor from RuleValues and `update`; one that carries a second scalar has `carry`, its value after this step, and
// one that does not count every step has `counted`, the count after this one.
#pragma once

#include "fused/math/optimizer_arguments.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

template <class T>
DNNSUITE_HD T magnitude(const T& x) {
    return maximum(x, T(0) - x);
}
/// 1, -1, or 0 for zero; NaN stays NaN.
template <class T>
DNNSUITE_HD T sign_of(const T& x) {
    const T zero = constant<T>(0);
    return select(zero < x, constant<T>(1), select(x < zero, constant<T>(-1), x));
}
template <class T>
DNNSUITE_HD T clamped(const T& x, const T& low, const T& high) {
    return select(high < x, high, select(x < low, low, x));
}

/// The number of steps that count after this one: those that the rule says, or all.
template <class Rule>
DNNSUITE_HD auto steps_after(const RuleValues& values, int) -> decltype(Rule::counted(values)) {
    return Rule::counted(values);
}
template <class Rule>
DNNSUITE_HD double steps_after(const RuleValues& values, long) {
    return values.step;
}

/// Writes the scalars of `entry` as they are after the step that `values` were taken for.
template <class Rule>
DNNSUITE_HD void advance(const OptimizerEntry& entry, const RuleValues& values, int64_t model) {
    if constexpr (Rule::kScalars > 0) entry.scalar[0][model * entry.scalar_stride[0]] = steps_after<Rule>(values, 0);
    if constexpr (Rule::kScalars > 1) entry.scalar[1][model * entry.scalar_stride[1]] = Rule::carry(values);
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
