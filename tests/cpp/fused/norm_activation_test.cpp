// SPDX-License-Identifier: MIT
#include "fused/math/norm_activation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

using A = NormActivation;
constexpr double kSlope = 0.2;

TEST(NormActivation, Values) {
    EXPECT_EQ(norm_activate<A::kNone>(-2.5, kSlope), -2.5);
    EXPECT_EQ(norm_activate<A::kRelu>(-2.5, kSlope), 0.0);
    EXPECT_EQ(norm_activate<A::kRelu6>(7.0, kSlope), 6.0);
    EXPECT_EQ(norm_activate<A::kLeakyRelu>(-2.0, kSlope), -0.4);
    EXPECT_DOUBLE_EQ(norm_activate<A::kHardswish>(1.0, kSlope), 4.0 / 6.0);
    EXPECT_EQ(norm_activate<A::kHardswish>(-3.5, kSlope), 0.0);
    EXPECT_DOUBLE_EQ(norm_activate<A::kSilu>(1.0, kSlope), 1.0 / (1.0 + std::exp(-1.0)));
}

template <A kind>
void expect_sound() {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(std::isnan(norm_activate<kind>(nan, kSlope)));
    for (double x : {-4.0, -2.0, -0.7, -0.01, 0.02, 1.0, 4.0, 7.0}) {
        const double h = 1e-6;
        const double slope = (norm_activate<kind>(x + h, kSlope) - norm_activate<kind>(x - h, kSlope)) / (2 * h);
        EXPECT_NEAR(norm_derivative<kind>(x, kSlope), slope, 1e-8) << x;
    }
}

TEST(NormActivation, DerivativesAreSlopes) {
    expect_sound<A::kNone>();
    expect_sound<A::kRelu>();
    expect_sound<A::kRelu6>();
    expect_sound<A::kLeakyRelu>();
    expect_sound<A::kHardswish>();
    expect_sound<A::kSilu>();
}

}  // namespace
}  // namespace dnnsuite::fused::DNNSUITE_ISA
