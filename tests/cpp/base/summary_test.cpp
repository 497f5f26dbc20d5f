// SPDX-License-Identifier: MIT
#include "base/summary.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error.hpp"

namespace dnnsuite::base {
namespace {

TEST(Summary, CountsOutliersAndKeepsThem) {
    const std::vector<double> values{1, 2, 3, 4, 5, 6, 7, 8, 9, 18, 100};
    const Summary all = summarise(values);
    EXPECT_EQ(all.count, 11);
    EXPECT_EQ(all.median, 6);
    EXPECT_EQ(all.q1, 3.5);
    EXPECT_EQ(all.q3, 8.5);
    EXPECT_EQ(all.mild, 1);
    EXPECT_EQ(all.severe, 1);
    EXPECT_EQ(all.mad, 3);
    EXPECT_TRUE(std::isnan(summarise({}).median));
}

TEST(Summary, QuantilesLieBetweenNeighbours) {
    const std::vector<double> values{4, 1, 2, 3};
    EXPECT_EQ(quantile(values, 0), 1);
    EXPECT_EQ(quantile(values, 0.5), 2.5);
    EXPECT_EQ(quantile(values, 1), 4);
    EXPECT_THROW(quantile(values, -0.1), InvalidArgument);
}

TEST(Trend, SeesALineAndNotASeesaw) {
    std::vector<double> line, seesaw;
    for (int i = 0; i < 100; ++i) {
        line.push_back(1 + 0.001 * i);
        seesaw.push_back(i % 2);
    }
    EXPECT_TRUE(trend(line).drifting);
    EXPECT_NEAR(trend(line).slope_per_100, 0.1 / 1.0495, 1e-9);
    EXPECT_FALSE(trend(seesaw).drifting);
    EXPECT_FALSE(trend(std::vector<double>(7, 1.0)).drifting);
}

}  // namespace
}  // namespace dnnsuite::base
