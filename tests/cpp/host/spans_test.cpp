// SPDX-License-Identifier: MIT
#include "host/spans.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <thread>

#include "base/error.hpp"
#include "host/clock.hpp"

namespace dnnsuite::host {
namespace {

TEST(Spans, NestInTheOrderOfTheirBeginning) {
    Spans spans(8);
    const std::int32_t step = spans.add_name("step"), forward = spans.add_name("forward");
    EXPECT_EQ(spans.add_name("step"), step);
    const std::int64_t before = now_ns();
    spans.set_step(7);
    EXPECT_EQ(spans.begin(step), 0);
    EXPECT_EQ(spans.begin(forward), 1);
    EXPECT_EQ(spans.end(forward), 1);
    EXPECT_EQ(spans.open(), 1);
    EXPECT_EQ(spans.columns().name, std::vector{forward});
    EXPECT_EQ(spans.end(step), 0);
    const Spans::Columns all = spans.columns();
    EXPECT_EQ(all.name, (std::vector{step, forward}));
    EXPECT_EQ(all.depth, (std::vector{0, 1}));
    EXPECT_EQ(all.step, (std::vector<std::int64_t>{7, 7}));
    EXPECT_EQ(all.thread[0], gettid());
    EXPECT_LE(before, all.t0_ns[0]);
    EXPECT_LE(all.t0_ns[0], all.t0_ns[1]);
    EXPECT_LE(all.t0_ns[1], all.t1_ns[1]);
    EXPECT_LE(all.t1_ns[1], all.t1_ns[0]);
    EXPECT_LE(all.t1_ns[0], now_ns());
}

TEST(Spans, AreCountedAndNestRightWhenThereIsNoRoom) {
    Spans spans(1);
    const std::int32_t outer = spans.add_name("outer"), inner = spans.add_name("inner");
    for (int i = 0; i < 2; ++i) {
        spans.begin(outer);
        EXPECT_EQ(spans.begin(inner), Spans::kNotKept);
        EXPECT_THROW(spans.end(outer), Error);
        spans.end(inner);
        spans.end(outer);
    }
    EXPECT_EQ(spans.count(), 1);
    EXPECT_EQ(spans.dropped(), 3);
    spans.clear();
    EXPECT_EQ(spans.dropped(), 0);
    EXPECT_EQ(spans.begin(inner), 0);
    EXPECT_THROW(spans.clear(), Error);
    spans.end(inner);
    EXPECT_EQ(spans.columns().depth, std::vector{0});
}

TEST(Spans, DeeperThanTheStackAreDropped) {
    Spans spans(1000);
    const std::int32_t name = spans.add_name("n");
    for (int i = 0; i < Spans::kDeepest + 3; ++i) spans.begin(name);
    for (int i = 0; i < Spans::kDeepest + 3; ++i) spans.end(name);
    EXPECT_EQ(spans.count(), Spans::kDeepest);
    EXPECT_EQ(spans.dropped(), 3);
    EXPECT_EQ(spans.open(), 0);
    EXPECT_THROW(spans.end(name), Error);
}

TEST(Spans, OfOneThreadEndInIt) {
    Spans spans(4);
    const std::int32_t name = spans.add_name("n");
    spans.begin(name);
    std::thread([&] { EXPECT_THROW(spans.end(name), Error); }).join();
    spans.end(name);
    EXPECT_EQ(spans.columns().name.size(), 1);
}

TEST(Spans, OfSeveralOwnersDoNotMix) {
    Spans one(4), two(4), three(4), four(4), five(4);
    for (Spans* spans : {&one, &two, &three, &four, &five}) spans->begin(spans->add_name("n"));
    EXPECT_EQ(five.dropped(), 1);  // more than a thread keeps apart
    for (Spans* spans : {&five, &four, &three, &two, &one}) spans->end(0);
    EXPECT_EQ(five.open(), 0);
    EXPECT_EQ(four.columns().depth, std::vector{0});
}

TEST(Spans, OfManyThreadsAreAllKept) {
    constexpr int kThreads = 4, kEach = 2000;
    Spans spans(kThreads * kEach * 2);
    const std::int32_t outer = spans.add_name("outer"), inner = spans.add_name("inner");
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([&] {
            for (int i = 0; i < kEach; ++i) {
                spans.set_step(i);
                spans.begin(outer);
                spans.begin(inner);
                spans.end(inner);
                spans.end(outer);
                if (i % 500 == 0) spans.add_name(std::to_string(i));
            }
        });
    for (int i = 0; i < 20; ++i) {  // read while they write
        const Spans::Columns some = spans.columns();
        for (std::size_t k = 0; k < some.slot.size(); ++k) ASSERT_LE(some.t0_ns[k], some.t1_ns[k]);
    }
    for (std::thread& thread : threads) thread.join();
    const Spans::Columns all = spans.columns();
    EXPECT_EQ(all.slot.size(), static_cast<std::size_t>(spans.capacity()));
    EXPECT_EQ(std::set<std::int32_t>(all.thread.begin(), all.thread.end()).size(), kThreads);
    for (std::size_t k = 0; k < all.slot.size(); ++k) ASSERT_EQ(all.depth[k], all.name[k] == inner ? 1 : 0);
    EXPECT_EQ(spans.dropped(), 0);
}

TEST(Spans, AForkedChildStartsWithNone) {
    Spans spans(8);
    const std::int32_t outer = spans.add_name("outer"), inner = spans.add_name("inner");
    spans.begin(inner);
    spans.end(inner);
    spans.begin(outer);
    const pid_t child = fork();
    if (child == 0) {
        bool good = spans.count() == 0 && spans.open() == 1;
        spans.begin(inner);
        spans.end(inner);
        spans.end(outer);  // the parent's: not kept, and no error
        const Spans::Columns all = spans.columns();
        good = good && all.name == std::vector{inner} && all.thread[0] == getpid() && spans.dropped() == 0;
        _exit(good ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    spans.end(outer);
    EXPECT_EQ(spans.columns().name, (std::vector{inner, outer}));
}

TEST(Spans, ANegativeCapacityIsRefused) { EXPECT_THROW(Spans(-1), InvalidArgument); }

}  // namespace
}  // namespace dnnsuite::host
