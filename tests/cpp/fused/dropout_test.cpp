// SPDX-License-Identifier: MIT
#include "fused/math/dropout.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "fused/cpu/dropout_mask.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

TEST(DropoutRule, RoundsTheRateAndScalesExactly) {
    EXPECT_EQ(dropout_rule(0.0f, 1, 2).threshold, 0u);
    EXPECT_EQ(dropout_rule(0.0f, 1, 2).scale, 1.0f);
    EXPECT_EQ(dropout_rule(0.1f, 1, 2).threshold, 6554u);
    EXPECT_EQ(dropout_rule(0.5f, 1, 2).scale, 2.0f);
    EXPECT_EQ(dropout_rule(1.0f, 1, 2).threshold, 65536u);
    EXPECT_EQ(dropout_rule(1.0f, 1, 2).scale, 0.0f);
    EXPECT_EQ(dropout_rule(-1.0f, 1, 2).threshold, 0u);
    EXPECT_EQ(dropout_rule(7.0f, 1, 2).threshold, 65536u);
}

TEST(DropoutRule, SplitsKeyAndStep) {
    const DropoutRule rule = dropout_rule(0.5f, -2, (int64_t{3} << 32) + 4);
    EXPECT_EQ(rule.key0, 0xfffffffeu);
    EXPECT_EQ(rule.key1, 0xffffffffu);
    EXPECT_EQ(rule.step0, 4u);
    EXPECT_EQ(rule.step1, 3u);
}

TEST(DropoutRule, ReadsStridedArrays) {
    const float p[] = {0.5f, 9.0f, 0.25f};
    const int64_t rng[] = {1, 0, 2, 0, 0, 0, 7, 0, 8};
    const DropoutArguments all{p, 2, rng, 6, 2};
    EXPECT_EQ(dropout_rule(all, 0).key0, 1u);
    EXPECT_EQ(dropout_rule(all, 0).step0, 2u);
    EXPECT_EQ(dropout_rule(all, 1).key0, 7u);
    EXPECT_EQ(dropout_rule(all, 1).step0, 8u);
    EXPECT_EQ(dropout_rule(all, 1).threshold, 16384u);
}

/// Vectors and the formula that the GPU runs agree element by element, from any first element.
template <class T>
void expect_same_factors(int64_t first, int64_t count) {
    const DropoutRule rule = dropout_rule(0.3f, 42, 43);
    std::vector<T> room(static_cast<size_t>(dropout_room(count)));
    const T* factors = dropout_factors(rule, first, count, room.data());
    for (int64_t i = 0; i < count; ++i)
        ASSERT_EQ(factors[i], static_cast<T>(dropout_factor(rule, static_cast<uint64_t>(first + i)))) << first + i;
}

TEST(DropoutFactors, AreTheFormulasForFloat) {
    for (int64_t first : {0, 1, 127, 128, 200}) {
        for (int64_t count : {1, 16, 128, 129, 1000}) expect_same_factors<float>(first, count);
    }
    expect_same_factors<float>((int64_t{1} << 36) + 77, 300);  // the counter's second word is not zero
}

TEST(DropoutFactors, AreTheFormulasForDouble) { expect_same_factors<double>(5, 400); }

}  // namespace
}  // namespace dnnsuite::fused::DNNSUITE_ISA
