// SPDX-License-Identifier: MIT
// The session against a scripted table of functions: a double of CUPTI's side, which needs a GPU. What a real CUPTI
// does is not tested here.
#include "gpu/activity_session.hpp"

#ifdef DNNSUITE_HAS_CUPTI

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "activity_records.hpp"
#include "gpu/activity_buffers.hpp"
#include "host/clock.hpp"

namespace dnnsuite::gpu {
namespace {

/// What the double does, and what was done to it.
struct Script {
    CUptiResult subscribe = CUPTI_SUCCESS;
    CUptiResult flush = CUPTI_SUCCESS;
    CUpti_ActivityKind fails = CUPTI_ACTIVITY_KIND_INVALID;  // to be enabled
    CUpti_TimestampCallbackFunc clock = nullptr;
    bool foreign_clock = false;
    int clock_registrations = 0;
    bool registered_while_subscribed = false;
    int subscribers = 0;
    int synchronizations = 0;
    std::size_t dropped = 0;
    std::set<CUpti_ActivityKind> enabled;
    CUpti_BuffersCallbackRequestFunc requested = nullptr;
    CUpti_BuffersCallbackCompleteFunc completed = nullptr;
    std::vector<std::pair<std::uint8_t*, std::size_t>> written;  // buffers with records, waiting for a flush
};

Script g_script;

std::uint64_t wall_ns() {
    using std::chrono::nanoseconds;  // not std::time's whole seconds: they may lag the clock by one and a tick
    return static_cast<std::uint64_t>(nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count());
}

CUptiResult walk_kernels(std::uint8_t* buffer, std::size_t bytes, CUpti_Activity** record) {
    constexpr std::size_t kStride = sizeof(CUpti_ActivityKernel10);
    auto* const next = *record == nullptr ? buffer : reinterpret_cast<std::uint8_t*>(*record) + kStride;
    if (next + kStride > buffer + bytes) {
        return CUPTI_ERROR_MAX_LIMIT_REACHED;
    }
    *record = reinterpret_cast<CUpti_Activity*>(next);
    return CUPTI_SUCCESS;
}

CuptiActivityApi scripted_api() {
    CuptiActivityApi api{};
    api.get_result_string = [](CUptiResult, const char** text) {
        *text = "scripted";
        return CUPTI_SUCCESS;
    };
    api.subscribe = [](CUpti_SubscriberHandle* handle, CUpti_CallbackFunc, void*, CUpti_SubscriberParams* params) {
        if (g_script.subscribe != CUPTI_SUCCESS) {
            std::snprintf(params->oldSubscriberName, params->oldSubscriberSize, "CUPTI for Kineto");
            return g_script.subscribe;
        }
        ++g_script.subscribers;
        *handle = reinterpret_cast<CUpti_SubscriberHandle>(&g_script);
        return CUPTI_SUCCESS;
    };
    api.unsubscribe = [](CUpti_SubscriberHandle) {
        --g_script.subscribers;
        return CUPTI_SUCCESS;
    };
    api.get_timestamp = [](std::uint64_t* stamp) {
        *stamp = g_script.foreign_clock ? 12345U : g_script.clock != nullptr ? g_script.clock() : wall_ns();
        return CUPTI_SUCCESS;
    };
    api.register_timestamp = [](CUpti_TimestampCallbackFunc clock) {
        g_script.clock = clock;
        ++g_script.clock_registrations;
        g_script.registered_while_subscribed |= g_script.subscribers > 0;
        return CUPTI_SUCCESS;
    };
    api.register_callbacks = [](CUpti_BuffersCallbackRequestFunc requested,
                                CUpti_BuffersCallbackCompleteFunc completed) {
        g_script.requested = requested;
        g_script.completed = completed;
        return CUPTI_SUCCESS;
    };
    api.set_attribute = [](CUpti_ActivityAttribute, std::size_t*, void*) { return CUPTI_SUCCESS; };
    api.enable = [](CUpti_ActivityKind kind) {
        if (kind == g_script.fails) {
            return CUPTI_ERROR_NOT_COMPATIBLE;
        }
        g_script.enabled.insert(kind);
        return CUPTI_SUCCESS;
    };
    api.disable = [](CUpti_ActivityKind kind) {
        g_script.enabled.erase(kind);
        return CUPTI_SUCCESS;
    };
    api.enable_runtime_api = [](CUpti_CallbackId, std::uint8_t) { return CUPTI_SUCCESS; };
    api.enable_driver_api = api.enable_runtime_api;
    api.flush_all = [](std::uint32_t) {
        for (const auto& [buffer, bytes] : g_script.written) {
            g_script.completed(nullptr, 0, buffer, ActivityBuffers::kBufferBytes, bytes);
        }
        g_script.written.clear();
        return g_script.flush;
    };
    api.get_num_dropped_records = [](CUcontext, std::uint32_t, std::size_t* dropped) {
        *dropped = std::exchange(g_script.dropped, 0U);
        return CUPTI_SUCCESS;
    };
    api.get_next_record = walk_kernels;
    api.finalize = [] {
        std::fputs("finalized\n", stderr);
        return CUPTI_SUCCESS;
    };
    return api;
}

const CuptiActivityApi g_api = scripted_api();

/// A thread of the tracer: asks for a buffer and writes kernels into it.
std::pair<std::uint8_t*, std::size_t> write_kernels(int count) {
    std::uint8_t* buffer = nullptr;
    std::size_t size = 0;
    std::size_t most = 0;
    g_script.requested(&buffer, &size, &most);
    if (buffer == nullptr) {
        return {nullptr, 0};
    }
    std::size_t used = 0;
    for (int i = 0; i < count; ++i) {
        const CUpti_ActivityKernel10 kernel = kernel_record(static_cast<std::uint64_t>(i) + 1, 1000, "kernel");
        std::memcpy(buffer + used, &kernel, sizeof kernel);
        used += sizeof kernel;
    }
    return {buffer, used};
}

class ActivitySessionTest : public testing::Test {
  protected:
    void SetUp() override {
        const CUpti_TimestampCallbackFunc clock = g_script.clock;  // the process's, as CUPTI's is
        g_script = Script{};
        g_script.clock = clock;
    }
    static ActivitySession::Machine machine() {
        return {g_api, [] { ++g_script.synchronizations; }};
    }
};

TEST_F(ActivitySessionTest, AWindowRecordsWhatTheTracerWrites) {
    ActivitySession session(machine(), {"kernels", "memops", "api"});
    EXPECT_TRUE(g_script.enabled.empty());
    session.start();
    EXPECT_TRUE(session.recording());
    EXPECT_EQ(g_script.enabled.count(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), 1U);
    EXPECT_EQ(g_script.enabled.count(CUPTI_ACTIVITY_KIND_KERNEL), 0U);
    EXPECT_EQ(g_script.enabled.size(), 6U);
    g_script.written.push_back(write_kernels(3));
    g_script.written.push_back(write_kernels(2));
    EXPECT_THROW(session.take(), Error);
    const std::int64_t before_ns = host::now_ns();
    session.stop();
    EXPECT_TRUE(g_script.enabled.empty());
    EXPECT_EQ(g_script.synchronizations, 2);
    EXPECT_LE(session.window_ns().first, before_ns);
    EXPECT_GE(session.window_ns().second, before_ns);
    const ActivityColumns columns = session.take();
    EXPECT_EQ(columns.kernels.t0_ns, (std::vector<std::int64_t>{1, 2, 3, 1, 2}));
    EXPECT_EQ(columns.strings.all(), std::vector<std::string>{"kernel"});
    EXPECT_TRUE(session.take().kernels.t0_ns.empty());
    session.start();  // another window
    g_script.written.push_back(write_kernels(1));
    g_script.dropped = 4;
    session.stop();
    EXPECT_EQ(session.take().kernels.t0_ns.size(), 1U);
    EXPECT_EQ(session.losses().dropped, 4U);
    EXPECT_EQ(session.losses().rejected, 0U);
}

TEST_F(ActivitySessionTest, ThereIsOneAtATime) {
    {
        ActivitySession first(machine(), {"kernels"});
        EXPECT_THROW(ActivitySession(machine(), {"kernels"}), Error);
        EXPECT_EQ(g_script.subscribers, 1);
        first.start();  // the refusal took nothing from it
        first.stop();
    }
    EXPECT_EQ(g_script.subscribers, 0);
    ActivitySession(machine(), {"kernels"}).close();
}

TEST_F(ActivitySessionTest, AnotherProfilerIsNamedAndNothingIsHeld) {
    g_script.subscribe = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    try {
        ActivitySession session(machine(), {"kernels"});
        FAIL() << "opened";
    } catch (const Unavailable& error) {
        EXPECT_NE(error.what_is_missing.find("Kineto"), std::string::npos) << error.what_is_missing;
        EXPECT_NE(error.remedy.find("torch.profiler"), std::string::npos);
    }
    g_script.subscribe = CUPTI_SUCCESS;
    ActivitySession session(machine(), {"kernels"});
}

TEST_F(ActivitySessionTest, TheClockIsRegisteredOnceAndOnlyInPlaceOfTheDefault) {
    {
        const ActivitySession session(machine(), {"kernels"});
    }
    {
        const ActivitySession session(machine(), {"kernels"});
    }
    EXPECT_LE(g_script.clock_registrations, 1);          // 0 when an earlier test's session did
    EXPECT_FALSE(g_script.registered_while_subscribed);  // subscribing latches the clock
    EXPECT_NEAR(static_cast<double>(g_script.clock()), static_cast<double>(host::now_ns()), 1e9);
    g_script.foreign_clock = true;
    EXPECT_THROW(ActivitySession(machine(), {"kernels"}), Unavailable);
    EXPECT_EQ(g_script.subscribers, 0);
}

TEST_F(ActivitySessionTest, WhatCannotBeEnabledLeavesNothingEnabled) {
    ActivitySession session(machine(), {"kernels", "memops", "overhead"});
    g_script.fails = CUPTI_ACTIVITY_KIND_OVERHEAD;
    EXPECT_THROW(session.start(), Error);
    EXPECT_TRUE(g_script.enabled.empty());
    EXPECT_FALSE(session.recording());
    EXPECT_THROW(session.stop(), Error);
    g_script.fails = CUPTI_ACTIVITY_KIND_INVALID;
    session.start();
    EXPECT_THROW(session.start(), Error);
    g_script.flush = CUPTI_ERROR_UNKNOWN;
    EXPECT_THROW(session.stop(), Error);
    EXPECT_TRUE(g_script.enabled.empty());
    EXPECT_FALSE(session.recording());
}

TEST_F(ActivitySessionTest, AClosedOneRecordsNoMore) {
    ActivitySession session(machine(), {"kernels"});
    session.start();
    session.close();
    session.close();
    EXPECT_TRUE(g_script.enabled.empty());
    EXPECT_EQ(g_script.subscribers, 0);
    EXPECT_THROW(session.start(), Error);
}

TEST_F(ActivitySessionTest, TablesThatThereAreNotAreRefused) {
    EXPECT_THROW(ActivitySession(machine(), {"kernels", "metrics"}), InvalidArgument);
    EXPECT_THROW(ActivitySession(machine(), {}), InvalidArgument);
    EXPECT_EQ(g_script.subscribers, 0);
}

TEST_F(ActivitySessionTest, RequestsBeyondTheLimitAreCountedPerSession) {
    const auto drown = [] {
        std::vector<std::pair<std::uint8_t*, std::size_t>> buffers;
        while (true) {
            buffers.push_back(write_kernels(0));
            if (buffers.back().first == nullptr) {
                buffers.pop_back();
                return buffers;
            }
        }
    };
    {
        ActivitySession session(machine(), {"kernels"});
        session.start();
        g_script.written = drown();
        EXPECT_EQ(session.losses().rejected, 1U);
        session.stop();
    }
    ActivitySession next(machine(), {"kernels"});
    EXPECT_EQ(next.losses().rejected, 0U);
}

TEST_F(ActivitySessionTest, SeveralThreadsOfTheTracerWriteAtOnce) {  // run under TSan: see CONTRIBUTING
    constexpr int kThreads = 4;
    constexpr int kRounds = 50;
    ActivitySession session(machine(), {"kernels"});
    session.start();
    std::vector<std::thread> tracers;
    for (int id = 0; id < kThreads; ++id) {
        tracers.emplace_back([] {
            for (int round = 0; round < kRounds; ++round) {
                const auto [buffer, bytes] = write_kernels(20);
                g_script.completed(nullptr, 0, buffer, ActivityBuffers::kBufferBytes, bytes);
            }
        });
    }
    for (std::thread& tracer : tracers) {
        tracer.join();
    }
    session.stop();
    EXPECT_EQ(session.take().kernels.t0_ns.size(), static_cast<std::size_t>(kThreads * kRounds * 20));
}

TEST_F(ActivitySessionTest, AChildOfAForkInAWindowRefusesAndTheParentGoesOn) {
    ActivitySession session(machine(), {"kernels"});
    session.start();
    const pid_t child = fork();
    if (child == 0) {
        int refused = 0;
        const auto expect_error = [&refused](auto call) {
            try {
                call();
            } catch (const Error&) {
                ++refused;
            }
        };
        expect_error([&] { session.stop(); });
        expect_error([&] { session.start(); });
        expect_error([&] { session.take(); });
        expect_error([&] { ActivitySession(machine(), {"kernels"}); });
        session.close();  // touches nothing
        const bool untouched = g_script.enabled.size() == 1 && g_script.subscribers == 1;
        const bool no_buffer = write_kernels(1).first == nullptr;
        _exit(refused == 4 && untouched && no_buffer ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    g_script.written.push_back(write_kernels(2));
    session.stop();
    EXPECT_EQ(session.take().kernels.t0_ns.size(), 2U);
}

TEST(ActivitySessionDeathTest, OneThatIsLeftOpenAtExitIsEndedAndFinalized) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // a new process, no fork of this one
    EXPECT_EXIT(
        {
            auto* const left = new ActivitySession({g_api, [] {}}, {"kernels"});
            left->start();
            std::exit(0);
        },
        testing::ExitedWithCode(0), "finalized");
}

}  // namespace
}  // namespace dnnsuite::gpu

#endif  // DNNSUITE_HAS_CUPTI
