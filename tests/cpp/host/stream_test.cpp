// SPDX-License-Identifier: MIT
#include "host/stream.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace dnnsuite::host {
namespace {

TEST(Stream, CountsWholeLinesOfThreeArrays) {
    const Bandwidth found = stream_triad({-1}, 1000, 3, 10'000);
    EXPECT_EQ(found.bytes_per_thread, 960);  // 40 elements of 24 bytes
    EXPECT_GT(found.median_bytes_per_s, 0.0);
    EXPECT_GE(found.best_bytes_per_s, found.median_bytes_per_s);
}

TEST(Stream, ThreadsAddUp) {
    const Bandwidth found = stream_triad({-1, -1, -1}, 1 << 14, 2, 10'000);
    EXPECT_GT(found.best_bytes_per_s, 0.0);
    EXPECT_STRNE(found.instruction_set, "");
}

TEST(Stream, RefusesWhatHasNoMeaning) {
    EXPECT_THROW(stream_triad({}, 1000, 1, 0), InvalidArgument);
    EXPECT_THROW(stream_triad({-1}, 191, 1, 0), InvalidArgument);
    EXPECT_THROW(stream_triad({-1}, 1000, 0, 0), InvalidArgument);
    EXPECT_THROW(stream_triad({-1, 65000}, 1000, 1, 0), Error);  // no such CPU: all threads end
}

TEST(Stream, SpinTakesTimeOfTheThread) {
    const Spin spun = spin(100'000);
    EXPECT_GT(spun.cpu_ns, 0);
    EXPECT_GT(spun.wall_ns, 0);
}

}  // namespace
}  // namespace dnnsuite::host
