// SPDX-License-Identifier: MIT
#include "host/clock.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace dnnsuite::host {
namespace {

TEST(Clock, IsTheSteadyClockAndNeverGoesBack) {
    const auto steady_ns = [] {  // CLOCK_MONOTONIC under both of Linux's C++ libraries
        return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
    };
    std::int64_t before = steady_ns();
    for (int i = 0; i < 1000; ++i) {
        const std::int64_t now = now_ns();
        EXPECT_GE(now, before);
        before = steady_ns();
        EXPECT_GE(before, now);
    }
}

}  // namespace
}  // namespace dnnsuite::host
