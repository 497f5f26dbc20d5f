// SPDX-License-Identifier: MIT
#include "base/warmup.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace dnnsuite::base {
namespace {

std::vector<double> noisy(std::size_t count, double noise = 0.01) {
    std::mt19937_64 generator(1);
    std::normal_distribution<double> normal(1, noise);
    std::vector<double> values(count);
    for (double& value : values) value = normal(generator);
    return values;
}

TEST(Mser5, ConstantSeriesHasNoWarmup) {
    const Warmup found = mser5(std::vector<double>(100, 0.1));  // 0.1: batch means that differ by rounding
    EXPECT_TRUE(found.steady) << found.reason;
    EXPECT_EQ(found.truncated, 0);
    EXPECT_NEAR(found.drift_per_100, 0, 1e-12);
}

TEST(Mser5, CutsAStepWhereItIs) {
    std::vector<double> values = noisy(200);
    for (std::size_t i = 0; i < 30; ++i) values[i] += 2;
    const Warmup found = mser5(values);
    EXPECT_TRUE(found.steady) << found.reason;
    EXPECT_GE(found.truncated, 30);
    EXPECT_LT(found.truncated, 100);
}

TEST(Mser5, CutsASlowFirstValueAndADecay) {
    std::vector<double> values = noisy(300);
    values[0] += 3;
    for (std::size_t i = 0; i < 60; ++i) values[i] += 0.5 * std::exp(-static_cast<double>(i) / 20);
    const Warmup found = mser5(values);
    EXPECT_TRUE(found.steady) << found.reason;
    EXPECT_GE(found.truncated, 40);
}

TEST(Mser5, RefusesALinearDrift) {
    std::vector<double> values(200);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1 + 0.002 * static_cast<double>(i);
    const Warmup found = mser5(values);
    EXPECT_FALSE(found.steady);
    EXPECT_NE(found.reason.find("no steady state"), std::string::npos) << found.reason;
    EXPECT_GT(found.drift_per_100, 0.1);
}

TEST(Mser5, RefusesALateStep) {
    std::vector<double> values = noisy(200);
    for (std::size_t i = 130; i < values.size(); ++i) values[i] += 1;
    EXPECT_FALSE(mser5(values).steady);
}

TEST(Mser5, RareSpikesAreNotWarmup) {
    std::vector<double> values = noisy(300);
    for (std::size_t i = 20; i < values.size(); i += 50) values[i] += 0.3;
    EXPECT_TRUE(mser5(values).steady);
}

TEST(Mser5, TellsTheDriftOfWhatIsLeft) {
    std::vector<double> values(100);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 2 + 1e-5 * static_cast<double>(i);
    EXPECT_NEAR(mser5(values).drift_per_100, 5e-4, 1e-6);
}

TEST(Mser5, ShortAndBrokenInputsGiveAStatus) {
    EXPECT_FALSE(mser5({}).steady);
    EXPECT_FALSE(mser5(std::vector<double>(19, 1.0)).steady);
    EXPECT_EQ(mser5(std::vector<double>(19, 1.0)).reason, "too short: 19 values, 20 are needed");
    EXPECT_TRUE(mser5(std::vector<double>(20, 1.0)).steady);
    std::vector<double> broken(50, 1.0);
    broken[7] = std::numeric_limits<double>::infinity();
    EXPECT_EQ(mser5(broken).reason, "a value is not finite");
    EXPECT_TRUE(std::isnan(mser5(broken).drift_per_100));
}

TEST(Mser5, ZerosAreSteady) {
    const Warmup found = mser5(std::vector<double>(60, 0.0));
    EXPECT_TRUE(found.steady) << found.reason;
    EXPECT_EQ(found.drift_per_100, 0);
}

}  // namespace
}  // namespace dnnsuite::base
