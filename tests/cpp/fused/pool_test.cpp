// SPDX-License-Identifier: MIT
#include "fused/math/pool.hpp"

#include <gtest/gtest.h>

namespace dnnsuite::fused {
namespace {

/// Pixels of window `w` between `first` and `last`, counted one by one.
int64_t counted(int64_t w, int64_t kernel, int64_t stride, int64_t padding, int64_t first, int64_t last) {
    int64_t count = 0;
    for (int64_t k = 0; k < kernel; ++k) {
        const int64_t at = w * stride - padding + k;
        count += at >= first && at < last ? 1 : 0;
    }
    return count;
}

TEST(Pool, WindowsLieInThePaddedImage) {
    for (int64_t n = 1; n < 9; ++n) {
        for (int64_t stride = 1; stride < 4; ++stride) {
            const int64_t kernel = 3, padding = 1;
            const int64_t floor = pooled_size(n, kernel, stride, padding, 1, false);
            EXPECT_LE((floor - 1) * stride + kernel, n + 2 * padding);
            EXPECT_GT(floor * stride + kernel, n + 2 * padding);
        }
    }
}

TEST(Pool, InCeilModeTheLastWindowBeginsBeforeTheEnd) {
    EXPECT_EQ(pooled_size(5, 2, 2, 0, 1, false), 2);
    EXPECT_EQ(pooled_size(5, 2, 2, 0, 1, true), 3);
    EXPECT_EQ(pooled_size(4, 1, 3, 0, 1, true), 2);
    EXPECT_EQ(pooled_size(3, 1, 3, 0, 1, true), 1);  // the second would begin behind the image
    EXPECT_EQ(pooled_size(2, 3, 1, 0, 1, false), 0);
    EXPECT_EQ(pooled_size(7, 3, 2, 0, 2, false), 2);
}

TEST(Pool, CountsPixelsAsATally) {
    const int64_t n = 7, kernel = 3;
    for (int64_t stride = 1; stride < 4; ++stride) {
        for (int64_t padding = 0; padding < 2; ++padding) {
            for (int64_t w = 0; w < pooled_size(n, kernel, stride, padding, 1, true); ++w) {
                EXPECT_EQ(counted_pixels(w, n, kernel, stride, padding, true),
                          counted(w, kernel, stride, padding, -padding, n + padding));
                EXPECT_EQ(counted_pixels(w, n, kernel, stride, padding, false),
                          counted(w, kernel, stride, padding, 0, n));
            }
        }
    }
}

}  // namespace
}  // namespace dnnsuite::fused
