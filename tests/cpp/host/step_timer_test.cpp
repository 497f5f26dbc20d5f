// SPDX-License-Identifier: MIT
#include "host/step_timer.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "host/clock.hpp"

namespace dnnsuite::host {
namespace {

TEST(StepTimer, KeepsStepsInOrder) {
    StepTimer timer(3);
    const std::int64_t before = now_ns();
    timer.start();
    timer.stop(8);
    timer.start();
    timer.stop(4);
    const std::int64_t after = now_ns();
    ASSERT_EQ(timer.count(), 2);
    EXPECT_LE(before, timer.starts_ns()[0]);
    EXPECT_LE(timer.starts_ns()[0], timer.stops_ns()[0]);
    EXPECT_LE(timer.stops_ns()[0], timer.starts_ns()[1]);
    EXPECT_LE(timer.stops_ns()[1], after);
    EXPECT_EQ(timer.items()[0], 8);
    EXPECT_EQ(timer.items()[1], 4);
}

TEST(StepTimer, LapLeavesNoGap) {
    StepTimer timer(2);
    timer.start();
    timer.lap(1);
    timer.lap(1);
    EXPECT_EQ(timer.stops_ns()[0], timer.starts_ns()[1]);
}

TEST(StepTimer, FullIsAnErrorThatKeepsTheSteps) {
    StepTimer timer(1);
    timer.start();
    timer.lap(1);
    EXPECT_THROW(timer.stop(1), Error);
    EXPECT_EQ(timer.count(), 1);
    timer.clear();
    EXPECT_EQ(timer.count(), 0);
    timer.start();
    timer.stop(2);
    EXPECT_EQ(timer.items()[0], 2);
}

TEST(StepTimer, AStepEndsOnlyOnce) {
    StepTimer timer(4);
    EXPECT_THROW(timer.stop(1), Error);
    timer.start();
    timer.stop(1);
    EXPECT_THROW(timer.lap(1), Error);
    EXPECT_EQ(timer.count(), 1);
}

TEST(StepTimer, NeverMovesItsMemory) {
    StepTimer timer(1000);
    const auto* first = timer.items().data();
    timer.start();
    for (int i = 0; i < 1000; ++i) timer.lap(i);
    EXPECT_EQ(timer.items().data(), first);
    EXPECT_EQ(timer.count(), timer.capacity());
}

TEST(StepTimer, CapacityIsChecked) {
    EXPECT_THROW(StepTimer(-1), InvalidArgument);
    EXPECT_EQ(StepTimer(0).capacity(), 0);
}

}  // namespace
}  // namespace dnnsuite::host
