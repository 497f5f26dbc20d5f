// SPDX-License-Identifier: MIT
#include "fused/cpu/vector_math.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

float exponential_of(float x) {
    float lanes[kLanes];
    exponential(Vec<float>(x)).store(lanes);
    return lanes[7];
}

TEST(Exponential, HasTheStatedError) {
    double worst = 0.0;
    for (float x = -87.2f; x < 88.2f; x += 0.0037f) {
        const double exact = std::exp(static_cast<double>(x));
        worst = std::fmax(worst, std::fabs(static_cast<double>(exponential_of(x)) - exact) / exact);
    }
    EXPECT_LT(worst, 1.5e-7);
}

TEST(Exponential, AtTheEnds) {
    const float infinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(exponential_of(0.0f), 1.0f);
    EXPECT_EQ(exponential_of(-infinity), 0.0f);
    EXPECT_EQ(exponential_of(-1e30f), 0.0f);
    EXPECT_GT(exponential_of(1e30f), 2e38f);
    EXPECT_TRUE(std::isnan(exponential_of(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Exponential, OfDoubleIsTheLibrarys) {
    double lanes[kLanes];
    exponential(Vec<double>(-1.25)).store(lanes);
    EXPECT_EQ(lanes[15], std::exp(-1.25));
}

float logarithm_of(float x) {
    float lanes[kLanes];
    logarithm(Vec<float>(x)).store(lanes);
    return lanes[7];
}

TEST(Logarithm, HasTheStatedError) {
    for (float x = 1e-30f; x < 1e30f; x *= 1.0037f) {
        const double exact = std::log(static_cast<double>(x));
        EXPECT_NEAR(static_cast<double>(logarithm_of(x)), exact, 1.5e-7 * (1 + std::fabs(exact))) << x;
    }
}

TEST(Logarithm, AtTheEnds) {
    EXPECT_EQ(logarithm_of(1.0f), 0.0f);
    EXPECT_TRUE(std::isnan(logarithm_of(std::numeric_limits<float>::quiet_NaN())));
    double lanes[kLanes];
    logarithm(Vec<double>(1.25)).store(lanes);
    EXPECT_EQ(lanes[15], std::log(1.25));
}

TEST(Normal, IsNearTheErrorFunctions) {
    for (float x = -12.0f; x < 12.0f; x += 0.0031f) {
        float distribution[kLanes], density[kLanes];
        const Normal<Vec<float>> n = normal(Vec<float>(x));
        n.distribution.store(distribution);
        n.density.store(density);
        const double wide = static_cast<double>(x);
        EXPECT_NEAR(static_cast<double>(distribution[3]), 0.5 * std::erfc(-wide / std::sqrt(2.0)), 2.5e-7) << x;
        EXPECT_NEAR(static_cast<double>(density[3]), std::exp(-wide * wide / 2) / std::sqrt(2 * M_PI), 1e-7) << x;
    }
}

TEST(SquareRoot, IsExact) {
    float lanes[kLanes];
    double wide[kLanes];
    square_root(iota<float>()).store(lanes);
    square_root(iota<double>()).store(wide);
    for (int i = 0; i < kLanes; ++i) {
        EXPECT_EQ(lanes[i], std::sqrt(static_cast<float>(i)));
        EXPECT_EQ(wide[i], std::sqrt(static_cast<double>(i)));
    }
}

TEST(MultiplyWide, HasAllSixtyFourBits) {
    Vec<uint32_t> high, low;
    const Vec<uint32_t> a = iota<uint32_t>() + Vec<uint32_t>(0xfffffff0u);
    multiply_wide(a, 0xD2511F53u, high, low);
    uint32_t highs[kLanes], lows[kLanes];
    high.store(highs);
    low.store(lows);
    for (uint32_t i = 0; i < kLanes; ++i) {
        const uint64_t product = uint64_t{0xfffffff0u + i} * 0xD2511F53u;
        EXPECT_EQ((uint64_t{highs[i]} << 32) + lows[i], product);
    }
}

}  // namespace
}  // namespace dnnsuite::fused::DNNSUITE_ISA
