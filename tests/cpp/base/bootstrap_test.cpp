// SPDX-License-Identifier: MIT
#include "base/bootstrap.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"

namespace dnnsuite::base {
namespace {

TEST(Bootstrap, LiesAroundTheMeanOfTheRuns) {
    const std::vector<std::vector<double>> runs{{1, 1.1}, {2}, {3, 3.2, 3.1}, {2.5, 2.4}};
    const Bootstrap found = bootstrap_mean(runs, 500, 0.9, 1);
    EXPECT_NEAR(found.value, (1.05 + 2 + 3.1 + 2.45) / 4, 1e-12);
    EXPECT_LT(found.low, found.value);
    EXPECT_GT(found.high, found.value);
    EXPECT_EQ(found.runs, 4);
    EXPECT_EQ(bootstrap_mean(runs, 500, 0.9, 1).low, found.low);
    const Bootstrap ratio = bootstrap_ratio(runs, {{2, 2}, {2, 2}}, 500, 0.9, 1);
    EXPECT_NEAR(ratio.value, found.value / 2, 1e-12);
}

TEST(Bootstrap, NothingToResampleIsNaN) {
    EXPECT_TRUE(std::isnan(bootstrap_mean({}, 100, 0.9, 0).value));
    EXPECT_TRUE(std::isnan(bootstrap_mean({{1}}, 100, 0.9, 0).low));
    EXPECT_THROW(bootstrap_mean({{}}, 100, 0.9, 0), InvalidArgument);
}

}  // namespace
}  // namespace dnnsuite::base
