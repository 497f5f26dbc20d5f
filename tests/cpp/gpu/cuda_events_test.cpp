// SPDX-License-Identifier: MIT
#include "gpu/cuda_events.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/error.hpp"

namespace dnnsuite::gpu {
namespace {

/// A stand-in for a device: what is recorded is over when `now` says so; milliseconds of its own clock.
struct Device {
    std::atomic<int> live = 0, recorded = 0, waited = 0, fail_create_after = 1 << 20, fail_record = 0;
    std::atomic<int> over = 0;  // events recorded up to this number are over
};
Device device;

struct FakeEvent {
    int order = 0;
};

EventFunctions fake() {
    device.live = device.recorded = device.waited = device.fail_record = device.over = 0;
    device.fail_create_after = 1 << 20;
    return {
        .create = [](EventFunctions::Event* event) -> int {
            if (device.live >= device.fail_create_after) return 2;
            ++device.live;
            *event = new FakeEvent;
            return 0;
        },
        .destroy = [](EventFunctions::Event event) -> int {
            --device.live;
            delete static_cast<FakeEvent*>(event);
            return 0;
        },
        .record = [](EventFunctions::Event event, EventFunctions::Stream) -> int {
            if (device.fail_record != 0) return device.fail_record;
            static_cast<FakeEvent*>(event)->order = ++device.recorded;
            return 0;
        },
        .query = [](EventFunctions::Event event) -> int {
            return static_cast<FakeEvent*>(event)->order <= device.over ? 0 : EventFunctions::kNotReady;
        },
        .synchronize = [](EventFunctions::Event event) -> int {
            ++device.waited;
            device.over = std::max(device.over.load(), static_cast<FakeEvent*>(event)->order);
            return 0;
        },
        .elapsed = [](float* milliseconds, EventFunctions::Event first, EventFunctions::Event second) -> int {
            *milliseconds =
                static_cast<float>(static_cast<FakeEvent*>(second)->order - static_cast<FakeEvent*>(first)->order);
            return 0;
        },
    };
}

TEST(CudaEvents, AreResolvedWhenTheyAreOverAndNotBefore) {
    CudaEvents events(fake(), 4);
    events.begin(10);
    events.begin(11);
    events.end(11);
    events.end(10);
    events.collect();
    EXPECT_TRUE(events.take().empty());
    EXPECT_EQ(events.pending(), 2);
    device.over = 3;
    events.collect();
    std::vector<CudaEvents::Resolved> found = events.take();
    ASSERT_EQ(found.size(), 1);
    EXPECT_EQ(found[0].key, 11);
    EXPECT_EQ(found[0].gpu_ns, 1'000'000);
    events.finish();
    found = events.take();
    ASSERT_EQ(found.size(), 1);
    EXPECT_EQ(found[0].key, 10);
    EXPECT_EQ(found[0].gpu_ns, 3'000'000);
    EXPECT_EQ(device.waited, 1);
    EXPECT_EQ(events.dropped(), 0);
}

TEST(CudaEvents, AnEmptyPoolIsRefilledByWhatIsOverOrCounted) {
    CudaEvents events(fake(), 2);
    for (std::int64_t key = 0; key < 3; ++key) {
        events.begin(key);
        events.end(key);
    }
    EXPECT_EQ(events.dropped(), 1);
    EXPECT_EQ(events.pending(), 2);
    device.over = 2;
    events.begin(3);
    events.end(3);
    EXPECT_EQ(events.dropped(), 1);
    EXPECT_EQ(events.pending(), 2);
    EXPECT_EQ(device.waited, 0) << "recording waits for nothing";
    EXPECT_EQ(device.live, 4) << "and makes no events";
}

TEST(CudaEvents, WhatWasNotBegunDoesNotEnd) {
    CudaEvents events(fake(), 1);
    events.end(5);
    events.begin(-1);
    events.end(-1);
    EXPECT_EQ(device.recorded, 0);
}

TEST(CudaEvents, ARefusalIsCountedAndNamed) {
    CudaEvents events(fake(), 1);
    device.fail_record = 400;
    events.begin(1);
    EXPECT_EQ(events.dropped(), 1);
    EXPECT_EQ(events.last_error(), 400);
    device.fail_record = 0;
    events.begin(2);
    device.fail_record = 719;
    events.end(2);
    device.fail_record = 0;
    events.begin(3);  // the pair is free again
    events.end(3);
    EXPECT_EQ(events.dropped(), 2);
    EXPECT_EQ(events.pending(), 1);
}

TEST(CudaEvents, NothingIsLeftBehind) {
    {
        CudaEvents events(fake(), 3);
        events.begin(1);
        events.begin(2);
        events.end(2);
    }
    EXPECT_EQ(device.live, 0);
    const EventFunctions functions = fake();
    device.fail_create_after = 3;
    EXPECT_THROW(CudaEvents(functions, 2), Unavailable);
    EXPECT_EQ(device.live, 0);
    EXPECT_THROW(CudaEvents(functions, 0), InvalidArgument);
}

TEST(CudaEvents, MayBeRecordedByManyThreads) {
    CudaEvents events(fake(), 8);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            for (int i = 0; i < 500; ++i) {
                events.begin(1000 * t + i);
                events.end(1000 * t + i);
                events.finish();
            }
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(static_cast<std::int64_t>(events.take().size()) + events.dropped(), 2000);
}

TEST(CudaEvents, AForkedChildLeavesThemAlone) {
    CudaEvents events(fake(), 1);
    events.begin(1);
    const int before = device.recorded;
    const pid_t child = fork();
    if (child == 0) {
        events.end(1);
        events.finish();
        _exit(device.recorded == before && device.waited == 0 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace dnnsuite::gpu
