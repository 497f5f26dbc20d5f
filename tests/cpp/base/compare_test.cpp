// SPDX-License-Identifier: MIT
#include "base/compare.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error.hpp"

namespace dnnsuite::base {
namespace {

TEST(Compare, GivesEachVerdict) {
    const std::vector<double> one{1.00, 1.01, 0.99, 1.00}, half{0.50, 0.505, 0.495, 0.50}, wild{0.5, 2.0, 0.9, 1.2};
    EXPECT_EQ(compare_paired(one, half, 0.01, 0.95).verdict, Verdict::kFaster);
    EXPECT_EQ(compare_paired(half, one, 0.01, 0.95).verdict, Verdict::kSlower);
    EXPECT_EQ(compare_paired(one, one, 0.01, 0.95).verdict, Verdict::kSame);
    const Comparison open = compare_paired(one, wild, 0.01, 0.95);
    EXPECT_EQ(open.verdict, Verdict::kInconclusive);
    EXPECT_GT(open.more_blocks, 1000);
    EXPECT_NEAR(compare_unpaired(one, half, 0.01, 0.95).ratio, 2, 1e-3);
    EXPECT_THROW(compare_paired(one, {}, 0.01, 0.95), InvalidArgument);
}

TEST(Compare, TooFewHaveAStatus) {
    const Comparison found = compare_paired({}, {}, 0.01, 0.95);
    EXPECT_EQ(found.verdict, Verdict::kInconclusive);
    EXPECT_EQ(found.more_blocks, 2);
    EXPECT_TRUE(std::isnan(found.ratio));
}

}  // namespace
}  // namespace dnnsuite::base
