// SPDX-License-Identifier: MIT
// The state machine over a double of our own table of functions: what is called, in which order. No GPU is played.
#include "gpu/range_session.hpp"

#ifdef DNNSUITE_HAS_CUPTI

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "gpu/counter_api.hpp"
#include "gpu/host_double.hpp"

namespace dnnsuite::gpu {
namespace {

using Calls = std::vector<std::string>;

/// What was called; how many passes a configuration asks for; which call is to fail.
struct Double {
    Calls calls;
    std::size_t passes_left = 1;
    std::vector<std::size_t> passes_by_segment{1};
    std::size_t segment = 0;
    std::string failing;
    CUptiResult failure = CUPTI_ERROR_UNKNOWN;
    std::size_t dropped = 0;
    std::size_t image_bytes = 0;  // of the metrics that were asked about last; an image of others is refused
} g;

CUptiResult said(const std::string& call) {
    g.calls.push_back(call);
    return call.substr(0, call.find(' ')) == g.failing ? g.failure : CUPTI_SUCCESS;
}

const RangeApi kDouble{
    .enable =
        [](CUpti_RangeProfiler_Enable_Params* p) {
            p->pRangeProfilerObject = reinterpret_cast<CUpti_RangeProfiler_Object*>(&g);
            return said("enable");
        },
    .disable = [](CUpti_RangeProfiler_Disable_Params*) { return said("disable"); },
    .get_image_size =
        [](CUpti_RangeProfiler_GetCounterDataSize_Params* p) {
            p->counterDataSize = g.image_bytes = 16 * p->maxNumOfRanges + p->pMetricNames[0][0];
            return said("size");
        },
    .initialize_image =
        [](CUpti_RangeProfiler_CounterDataImage_Initialize_Params* p) {
            return p->counterDataSize == g.image_bytes ? CUPTI_SUCCESS : CUPTI_ERROR_UNKNOWN;
        },
    .set_config =
        [](CUpti_RangeProfiler_SetConfig_Params* p) {
            g.passes_left = g.passes_by_segment[g.segment++ % g.passes_by_segment.size()];
            return said(p->range == CUPTI_AutoRange && p->replayMode == CUPTI_KernelReplay ? "config kernels"
                                                                                           : "config");
        },
    .start = [](CUpti_RangeProfiler_Start_Params*) { return said("start"); },
    .stop =
        [](CUpti_RangeProfiler_Stop_Params* p) {
            p->isAllPassSubmitted = --g.passes_left == 0 ? 1 : 0;
            return said("stop");
        },
    .push_range = [](CUpti_RangeProfiler_PushRange_Params* p) { return said(std::string("push ") + p->pRangeName); },
    .pop_range = [](CUpti_RangeProfiler_PopRange_Params*) { return said("pop"); },
    .decode =
        [](CUpti_RangeProfiler_DecodeData_Params* p) {
            p->numOfRangeDropped = g.dropped;
            return said("decode");
        },
};

class RangeSessionTest : public ::testing::Test {
  protected:
    void SetUp() override {
        g = Double{};
        host.passes = {{"a", 1}, {"b", 1}, {"two", 2}};
    }
    Calls since(std::size_t from) const { return {g.calls.begin() + static_cast<std::ptrdiff_t>(from), g.calls.end()}; }
    HostDouble host;
};

TEST_F(RangeSessionTest, OneGroupIsOneSegmentOverAllSteps) {
    RangeSession session(kDouble, host, nullptr, {{"a", "b"}}, RangeMode::kSteps, 8);
    session.start();
    session.step();
    session.step();
    session.stop();
    EXPECT_EQ(g.calls, (Calls{"enable", "size", "config", "start", "push 0", "pop", "push 1", "pop", "push 2", "pop",
                              "stop", "decode"}));
    const std::vector<RangeSegment> segments = session.take();
    ASSERT_EQ(segments.size(), 1U);
    EXPECT_EQ(segments[0].steps, 2U);  // range 2 is of a step that did not end
    EXPECT_TRUE(session.take().empty());
    session.close();
    session.close();
    EXPECT_EQ(g.calls.back(), "disable");
    EXPECT_EQ(std::count(g.calls.begin(), g.calls.end(), "disable"), 1);
}

TEST_F(RangeSessionTest, ASegmentEndsBeforeItsRoomDoes) {
    g.dropped = 3;
    RangeSession session(kDouble, host, nullptr, {{"a"}}, RangeMode::kSteps, 3);
    session.start();
    for (int step = 0; step < 7; ++step) {
        session.step();
    }
    session.stop();
    std::vector<std::pair<std::size_t, std::size_t>> found;
    for (const RangeSegment& segment : session.take()) {
        found.emplace_back(segment.first_step, segment.steps);
        EXPECT_EQ(segment.dropped, 3U);
    }
    EXPECT_EQ(found, (std::vector<std::pair<std::size_t, std::size_t>>{{0, 3}, {3, 3}, {6, 1}}));
}

TEST_F(RangeSessionTest, GroupsTakeTurnsAndNoStepIsRunAgain) {
    RangeSession session(kDouble, host, nullptr, {{"a"}, {"b"}}, RangeMode::kSteps, 4);
    session.start();
    session.step();
    session.step();
    session.step();
    session.stop();
    session.start();  // another window goes on where the turn was
    session.step();
    session.stop();
    std::vector<std::pair<std::size_t, std::size_t>> found;
    for (const RangeSegment& segment : session.take()) {
        found.emplace_back(segment.group, segment.first_step);
        EXPECT_EQ(segment.steps, 1U);
    }
    EXPECT_EQ(found, (std::vector<std::pair<std::size_t, std::size_t>>{{0, 0}, {1, 1}, {0, 2}, {1, 3}}));
}

TEST_F(RangeSessionTest, TwoPassesAreTwoStepsUnderOneName) {
    g.passes_by_segment = {2};
    RangeSession session(kDouble, host, nullptr, {{"two"}}, RangeMode::kSteps, 4);
    EXPECT_EQ(session.passes(), std::vector<std::size_t>{2});
    session.start();
    session.step();
    session.step();
    session.step();
    session.stop();
    EXPECT_EQ(g.calls,
              (Calls{"enable", "size", "config", "start", "push 0", "pop", "stop", "start", "push 0", "pop", "stop",
                     "decode", "size", "config", "start", "push 2", "pop", "stop", "start", "push 2", "pop", "stop"}));
    EXPECT_EQ(session.take().size(), 1U);
    EXPECT_EQ(session.steps_left_out(), 1U);  // its second pass was over what came after the last step
}

TEST_F(RangeSessionTest, AnUnfinishedSetOfPassesIsLeftOutAndCounted) {
    g.passes_by_segment = {3};
    RangeSession session(kDouble, host, nullptr, {{"two"}}, RangeMode::kSteps, 4);
    session.start();
    session.step();
    session.stop();
    EXPECT_TRUE(session.take().empty());
    EXPECT_EQ(session.steps_left_out(), 1U);
}

TEST_F(RangeSessionTest, MarksDivideAStep) {
    RangeSession session(kDouble, host, nullptr, {{"a"}}, RangeMode::kSteps, 8);
    session.start();
    session.mark("backward");
    session.step();
    session.stop();
    EXPECT_EQ(since(3), (Calls{"start", "push 0", "pop", "push 0/backward", "pop", "push 1", "pop", "stop", "decode"}));
}

TEST_F(RangeSessionTest, AWindowWithoutStepsIsOneStep) {
    RangeSession session(kDouble, host, nullptr, {{"a"}}, RangeMode::kSteps, 8);
    session.start();
    session.stop();
    const std::vector<RangeSegment> segments = session.take();
    ASSERT_EQ(segments.size(), 1U);
    EXPECT_EQ(segments[0].steps, 1U);
}

TEST_F(RangeSessionTest, KernelsHaveNoRangesOfOurs) {
    RangeSession session(kDouble, host, nullptr, {{"a", "two"}}, RangeMode::kKernels, 100);
    session.start();
    session.mark("ignored");
    session.step();
    session.stop();
    EXPECT_EQ(since(2),
              (Calls{"config kernels", "start", "stop", "decode", "size", "config kernels", "start", "stop"}));
    EXPECT_EQ(session.take().size(), 1U);
}

TEST_F(RangeSessionTest, CallsOutOfOrderAreRefused) {
    RangeSession session(kDouble, host, nullptr, {{"a"}}, RangeMode::kSteps, 8);
    EXPECT_THROW(session.step(), Error);
    EXPECT_THROW(session.stop(), Error);
    session.start();
    EXPECT_THROW(session.start(), Error);
    session.close();
    EXPECT_THROW(session.start(), Error);
}

TEST_F(RangeSessionTest, AFailureWithinAWindowLeavesNothingRunning) {
    RangeSession session(kDouble, host, nullptr, {{"a"}}, RangeMode::kSteps, 8);
    session.start();
    g.failing = "push";
    EXPECT_THROW(session.step(), Error);
    g.failing.clear();
    EXPECT_EQ(g.calls.back(), "stop");
    session.start();  // the next window is whole
    session.stop();
    EXPECT_EQ(session.take().size(), 1U);
}

TEST_F(RangeSessionTest, WhatForbidsCountersIsSaidAndNothingIsHeld) {
    g.failing = "enable";
    g.failure = CUPTI_ERROR_HARDWARE_BUSY;
    EXPECT_THROW(RangeSession(kDouble, host, nullptr, {{"a"}}, RangeMode::kSteps, 8), Unavailable);
    EXPECT_EQ(g.calls, Calls{"enable"});
    g.failing = "size";
    EXPECT_THROW(RangeSession(kDouble, host, nullptr, {{"a"}}, RangeMode::kSteps, 8).start(), Unavailable);
    EXPECT_EQ(g.calls.back(), "disable");
    g.failing = "enable";
    g.failure = CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
    try {
        RangeSession(kDouble, host, nullptr, {{"a"}}, RangeMode::kSteps, 8);
        FAIL() << "opened";
    } catch (const Unavailable& error) {
        EXPECT_NE(error.remedy.find("NVreg_RestrictProfilingToAdminUsers=0"), std::string::npos);
    }
}

TEST_F(RangeSessionTest, BadGroupsAreRefusedBeforeTheGpuIsTouched) {
    host.passes["apart"] = 1;
    EXPECT_THROW(RangeSession(kDouble, host, nullptr, {}, RangeMode::kSteps, 8), InvalidArgument);
    EXPECT_THROW(RangeSession(kDouble, host, nullptr, {{"nonsense"}}, RangeMode::kSteps, 8), InvalidArgument);
    EXPECT_THROW(RangeSession(kDouble, host, nullptr, {{"a", "apart"}}, RangeMode::kSteps, 8), InvalidArgument);
    EXPECT_THROW(RangeSession(kDouble, host, nullptr, {{"a"}}, RangeMode::kSteps, 0), InvalidArgument);
    EXPECT_TRUE(g.calls.empty());
}

TEST_F(RangeSessionTest, AChildOfForkOnlyForgets) {
    RangeSession session(kDouble, host, nullptr, {{"a"}}, RangeMode::kSteps, 8);
    session.start();
    const std::size_t before = g.calls.size();
    const pid_t child = fork();
    if (child == 0) {
        session.close();
        _exit(g.calls.size() == before ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    session.stop();
}

}  // namespace
}  // namespace dnnsuite::gpu

#endif  // DNNSUITE_HAS_CUPTI
