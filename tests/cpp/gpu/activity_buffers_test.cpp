// SPDX-License-Identifier: MIT
#include "gpu/activity_buffers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.hpp"

namespace dnnsuite::gpu {
namespace {

constexpr std::size_t kBytes = 4096;

bool all_zero(const std::uint8_t* buffer, std::size_t bytes) {
    return std::all_of(buffer, buffer + bytes, [](std::uint8_t byte) { return byte == 0; });
}

TEST(ActivityBuffers, ABufferIsZeroedAlignedAndComesBackToTheConsumer) {
    std::size_t seen = 0;
    ActivityBuffers buffers(kBytes, 2 * kBytes, [&](std::span<std::uint8_t> records) {
        seen = records.size();
        EXPECT_EQ(records[0], 7);
    });
    std::uint8_t* const first = buffers.request();
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 8, 0U);
    EXPECT_TRUE(all_zero(first, kBytes));
    std::memset(first, 7, kBytes);
    buffers.complete(first, 100);
    EXPECT_EQ(seen, 100U);
    std::uint8_t* const again = buffers.request();
    EXPECT_EQ(again, first);  // it goes round
    EXPECT_TRUE(all_zero(again, kBytes));
}

TEST(ActivityBuffers, RequestsBeyondTheLimitAreRefusedAndCounted) {
    ActivityBuffers buffers(kBytes, 3 * kBytes - 1, [](std::span<std::uint8_t>) {});
    buffers.preallocate(10);
    EXPECT_EQ(buffers.counts().made, 2U);
    std::uint8_t* const one = buffers.request();
    EXPECT_NE(buffers.request(), nullptr);
    EXPECT_EQ(buffers.request(), nullptr);
    EXPECT_EQ(buffers.request(), nullptr);
    EXPECT_EQ(buffers.counts().rejected, 2U);
    EXPECT_EQ(buffers.counts().out, 2U);
    buffers.complete(one, 0);
    EXPECT_EQ(buffers.request(), one);
}

TEST(ActivityBuffers, ABufferThatIsBeingReadCountsForTheLimit) {
    ActivityBuffers* all = nullptr;
    std::uint8_t* meanwhile = nullptr;
    ActivityBuffers buffers(kBytes, kBytes, [&](std::span<std::uint8_t>) { meanwhile = all->request(); });
    all = &buffers;
    std::uint8_t* const only = buffers.request();
    buffers.complete(only, 8);
    EXPECT_EQ(meanwhile, nullptr);
    EXPECT_EQ(buffers.counts().made, 1U);
    EXPECT_EQ(buffers.counts().out, 0U);
}

TEST(ActivityBuffers, StrangersAndFailuresAreCounted) {
    ActivityBuffers buffers(kBytes, kBytes, [](std::span<std::uint8_t>) { throw std::runtime_error("no"); });
    std::uint8_t stranger = 0;
    buffers.complete(&stranger, 1);
    EXPECT_EQ(buffers.counts().foreign, 1U);
    std::uint8_t* const mine = buffers.request();
    buffers.complete(mine, 8);
    buffers.complete(mine, 8);  // a second time: it is not out any more
    EXPECT_EQ(buffers.counts().failed, 1U);
    EXPECT_EQ(buffers.counts().foreign, 2U);
    EXPECT_EQ(buffers.counts().returned, 1U);
    EXPECT_NE(buffers.request(), nullptr);
}

TEST(ActivityBuffers, MoreValidBytesThanThereAreAreNotRead) {
    std::size_t seen = 0;
    ActivityBuffers buffers(kBytes, kBytes, [&](std::span<std::uint8_t> records) { seen = records.size(); });
    buffers.complete(buffers.request(), 10 * kBytes);
    EXPECT_EQ(seen, kBytes);
}

TEST(ActivityBuffers, SizesThatCannotBeAreRefused) {
    const auto nothing = [](std::span<std::uint8_t>) {};
    EXPECT_THROW(ActivityBuffers(0, kBytes, nothing), InvalidArgument);
    EXPECT_THROW(ActivityBuffers(12, kBytes, nothing), InvalidArgument);
    EXPECT_THROW(ActivityBuffers(kBytes, kBytes - 1, nothing), InvalidArgument);
}

TEST(ActivityBuffers, ManyThreadsLoseNothing) {  // run under TSan: see CONTRIBUTING
    constexpr int kThreads = 4;
    constexpr int kRounds = 500;
    std::atomic<std::size_t> received{0};
    ActivityBuffers buffers(kBytes, kThreads * kBytes, [&](std::span<std::uint8_t> records) {
        for (const std::uint8_t byte : records) {
            received += byte;
        }
    });
    std::atomic<int> dirty{0};
    std::vector<std::thread> tracers;
    for (int id = 0; id < kThreads; ++id) {
        tracers.emplace_back([&] {
            for (int round = 0; round < kRounds; ++round) {
                std::uint8_t* const buffer = buffers.request();  // as many as threads: never refused
                dirty += all_zero(buffer, 16) ? 0 : 1;
                std::memset(buffer, 1, 16);
                buffers.complete(buffer, 16);
            }
        });
    }
    for (std::thread& tracer : tracers) {
        tracer.join();
    }
    EXPECT_EQ(dirty, 0);
    EXPECT_EQ(received, static_cast<std::size_t>(kThreads * kRounds * 16));
    const ActivityBuffers::Counts counts = buffers.counts();
    EXPECT_EQ(counts.returned, static_cast<std::size_t>(kThreads * kRounds));
    EXPECT_EQ(counts.rejected, 0U);
    EXPECT_EQ(counts.out, 0U);
    EXPECT_LE(counts.made, static_cast<std::size_t>(kThreads));
}

}  // namespace
}  // namespace dnnsuite::gpu
