// SPDX-License-Identifier: MIT
#include "fused/math/cross_entropy.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

/// The loss as sum over classes of -(target probability) * log(softmax).
TEST(RowCrossEntropy, IsTheSumOverTheClasses) {
    const double logits[] = {0.3, -1.2, 2.0}, smoothing = 0.1;
    const int target = 2;
    double total = 0.0, loss = 0.0, mean = 0.0;
    for (double x : logits) total += std::exp(x);
    const double log_sum = std::log(total);
    for (int i = 0; i < 3; ++i) {
        loss -= target_probability(i == target, smoothing, 3.0) * (logits[i] - log_sum);
        mean += logits[i] / 3;
    }
    EXPECT_NEAR(row_cross_entropy(log_sum, logits[target], mean, smoothing), loss, 1e-15);
}

TEST(TargetProbability, SumsToOne) {
    double total = 0.0;
    for (int i = 0; i < 5; ++i) total += target_probability(i == 3, 0.3, 5.0);
    EXPECT_NEAR(total, 1.0, 1e-15);
}

}  // namespace
}  // namespace dnnsuite::fused::DNNSUITE_ISA
