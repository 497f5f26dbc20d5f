// SPDX-License-Identifier: MIT
#include "base/series_error.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace dnnsuite::base {
namespace {

TEST(SeriesError, ValuesThatFollowEachOtherAreWorthFewer) {
    std::vector<double> alternating, slow;
    for (int i = 0; i < 60; ++i) {
        alternating.push_back(i % 2 == 0 ? 1 : -1);
        slow.push_back(std::sin(i / 5.0));
    }
    EXPECT_GT(series_error(alternating).effective, 60);  // one above for each one below: the mean is well known
    EXPECT_TRUE(series_error(alternating).why.empty());
    EXPECT_LT(series_error(slow).effective, 2);
}

TEST(SeriesError, ADriftIsTooShort) {
    std::vector<double> rising, level;
    for (int i = 0; i < 200; ++i) {
        level.push_back(std::sin(7.0 * i * i));
        rising.push_back(level.back() + i / 50.0);
    }
    EXPECT_TRUE(series_error(level).why.empty());
    EXPECT_NE(series_error(rising).why.find("rise or fall"), std::string::npos);
}

TEST(SeriesError, FewAreTooShort) {
    EXPECT_NE(series_error(std::vector<double>{1, 2, 3}).why.find("3 values"), std::string::npos);
    EXPECT_TRUE(std::isnan(series_error(std::vector<double>{1}).variance));
    EXPECT_EQ(series_error(std::vector<double>(30, 2.5)).variance, 0);
}

TEST(RunsError, SixThatAreIndependentAreEnough) {
    EXPECT_TRUE(runs_error(std::vector<double>{1, 3, 2, 5, 1, 4}).why.empty());
    EXPECT_NE(runs_error(std::vector<double>{1, 3}).why.find("2 runs"), std::string::npos);
    EXPECT_DOUBLE_EQ(runs_error(std::vector<double>{1, 3}).variance, 1);
    EXPECT_NE(runs_error(std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}).why.find("not independent"),
              std::string::npos);
}

}  // namespace
}  // namespace dnnsuite::base
