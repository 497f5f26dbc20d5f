// SPDX-License-Identifier: MIT
#include "base/pieces.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace dnnsuite::base {
namespace {

TEST(Pieces, AreOfOneLengthToOneValue) {
    EXPECT_EQ(means_of_pieces(std::vector<double>{1, 2, 3, 4, 5}, 2), (std::vector<double>{1.5, 4}));
    EXPECT_EQ(means_of_pieces(std::vector<double>{1, 2}, 64), (std::vector<double>{1, 2}));
    EXPECT_TRUE(means_of_pieces({}, 3).empty());
}

TEST(Scatter, OfValuesThatTakeTurns) {
    const Scatter found = scatter(std::vector<double>{1, 3, 1, 3});
    EXPECT_EQ(found.mean, 2);
    EXPECT_EQ(found.squares, 4);
    EXPECT_EQ(found.lag1, -0.75);
    EXPECT_EQ(scatter(std::vector<double>{2, 2}).lag1, 0);
}

}  // namespace
}  // namespace dnnsuite::base
