// SPDX-License-Identifier: MIT
#include "fused/math/activation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

TEST(Activation, Values) {
    EXPECT_EQ(activate<Activation::kNone>(-2.5), -2.5);
    EXPECT_EQ(activate<Activation::kRelu>(-2.5), 0.0);
    EXPECT_EQ(activate<Activation::kRelu>(2.5), 2.5);
    EXPECT_TRUE(std::isnan(activate<Activation::kRelu>(std::numeric_limits<double>::quiet_NaN())));
    EXPECT_DOUBLE_EQ(activate<Activation::kGelu>(1.0), 0.84134474606854293);
    EXPECT_FLOAT_EQ(activate<Activation::kGelu>(-1.0f), -0.15865525f);
}

template <Activation kind>
void expect_derivative(double x) {
    const double h = 1e-6;
    const double slope = (activate<kind>(x + h) - activate<kind>(x - h)) / (2 * h);
    EXPECT_NEAR(activation_derivative<kind>(x), slope, 1e-8) << x;
}

TEST(Activation, DerivativesAreSlopes) {
    for (double x : {-3.0, -0.7, -0.01, 0.02, 1.0, 4.0}) {
        expect_derivative<Activation::kNone>(x);
        expect_derivative<Activation::kRelu>(x);
        expect_derivative<Activation::kGelu>(x);
    }
    EXPECT_EQ(activation_derivative<Activation::kRelu>(0.0), 0.0);
}

}  // namespace
}  // namespace dnnsuite::fused::DNNSUITE_ISA
