// SPDX-License-Identifier: MIT
#include "host/block_pool.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace dnnsuite::host {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

long page_faults() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

TEST(BlockPool, AllSizesAreAlignedAndWritable) {
    BlockPool pool;
    for (std::size_t size = 1; size < 4 * kMiB; size = size * 3 + 1) {
        void* pointer = pool.take(size);
        ASSERT_NE(pointer, nullptr);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pointer) % BlockPool::kAlignment, 0U);
        std::memset(pointer, 0x5a, size);
        pool.give(pointer);
    }
    pool.give(nullptr);
}

TEST(BlockPool, ABlockOfTheSameSizeIsTheSameMemory) {
    BlockPool pool;
    void* first = pool.take(8 * kMiB);
    std::memset(first, 1, 8 * kMiB);
    pool.give(first);
    [[maybe_unused]] const long before = page_faults();
    for (const std::size_t size : {8 * kMiB, 8 * kMiB - 1000, 8 * kMiB - kMiB / 4}) {  // or of about its size
        void* again = pool.take(size);
        EXPECT_EQ(again, first);
        std::memset(again, 2, size);
        pool.give(again);
    }
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    EXPECT_LT(page_faults() - before, 100);  // of 2048 pages
#endif
    void* smaller = pool.take(4 * kMiB);  // half the size is another block
    EXPECT_NE(smaller, first);
    pool.give(smaller);
    EXPECT_EQ(pool.usage().used_bytes, 0);
    pool.release();
    EXPECT_EQ(pool.usage().kept_bytes, 0);
}

TEST(BlockPool, KeepsNoMoreThanWasInUse) {
    BlockPool pool;
    std::mt19937 random(7);
    std::vector<void*> held;
    for (int i = 0; i < 2000; ++i) {
        const std::size_t size = BlockPool::kLeast + random() % (64 * kMiB);  // mapped, never touched
        if (held.size() < 4 || random() % 2 == 0) held.push_back(pool.take(size));
        if (held.size() > 8 || random() % 2 == 0) {
            const std::size_t at = random() % held.size();
            pool.give(held[at]);
            held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
        }
        const BlockPool::Usage usage = pool.usage();
        const auto most = static_cast<double>(usage.most_used_bytes);
        EXPECT_LE(static_cast<double>(usage.used_bytes + usage.kept_bytes),
                  std::max(BlockPool::kSlack * most, most + static_cast<double>(BlockPool::kFree)) + 1);
    }
    for (void* pointer : held) pool.give(pointer);
    EXPECT_EQ(pool.usage().used_bytes, 0);
}

TEST(BlockPool, SmallStepsOfTwoKindsKeepEachTheirBlocks) {
    BlockPool pool;
    const auto turn = [&pool](std::size_t size) {
        std::vector<void*> held;
        for (int i = 0; i < 4; ++i) held.push_back(pool.take(size));
        std::vector<void*> places = held;
        for (void* pointer : held) pool.give(pointer);
        return std::set<void*>(places.begin(), places.end());
    };
    const auto step = turn(3 * kMiB), validation = turn(5 * kMiB);
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(turn(3 * kMiB), step);
        EXPECT_EQ(turn(5 * kMiB), validation);
    }
}

TEST(BlockPool, AStepThatNeedsMoreThanTheLimitKeepsItsBlocks) {
    BlockPool pool;
    std::set<void*> seen;
    const auto turn = [&] {  // sizes that take turns: each alone fits the limit, all together do not
        for (const std::size_t size : {40 * kMiB, 33 * kMiB, 27 * kMiB, 22 * kMiB, 18 * kMiB, 15 * kMiB}) {
            void* pointer = pool.take(size);
            seen.insert(pointer);
            pool.give(pointer);
        }
    };
    for (int i = 0; i < 3; ++i) turn();
    seen.clear();
    const BlockPool::Usage before = pool.usage();
    for (int i = 0; i < 3; ++i) turn();
    EXPECT_LE(seen.size(), 4U);  // no block is mapped anew
    EXPECT_EQ(pool.usage().kept_bytes, before.kept_bytes);
    EXPECT_EQ(pool.usage().most_used_bytes, before.most_used_bytes);
}

TEST(BlockPool, OtherSizesTakeTheBlocksOfTheLastOnes) {
    BlockPool pool;
    void* first = pool.take(2 * kMiB);
    pool.give(first);
    void* smaller = pool.take(kMiB / 2);  // of the same step
    EXPECT_NE(smaller, first);
    pool.give(smaller);
    pool.give(pool.take(2 * BlockPool::kLargePages));
    pool.expect_other_sizes();
    const std::int64_t before = pool.usage().kept_bytes;
    void* tiny = pool.take(BlockPool::kLeast);
    EXPECT_EQ(tiny, smaller);
    void* tinier = pool.take(BlockPool::kLeast);  // would waste the most of what is left
    EXPECT_GT(pool.usage().used_bytes + pool.usage().kept_bytes, before);
    for (int i = 0; i < 3; ++i) {
        for (const std::size_t size : {kMiB, 2 * kMiB}) {  // the old size comes again between steps of the new one
            void* block = pool.take(size);
            EXPECT_EQ(block, first);
            pool.give(block);
        }
    }
    pool.give(tiny);
    pool.give(tinier);
    EXPECT_EQ(pool.usage().used_bytes, 0);
}

TEST(BlockPool, FirstUseOfALargeBlockTakesFewPageFaults) {
    BlockPool pool;
    std::ifstream setting("/sys/kernel/mm/transparent_hugepage/enabled");
    std::string line;
    if (!std::getline(setting, line) || line.find("[never]") != std::string::npos) GTEST_SKIP() << "no large pages";
    const long before = page_faults();
    void* pointer = pool.take(64 * kMiB);
    std::memset(pointer, 1, 64 * kMiB);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    EXPECT_LT(page_faults() - before, 8192);  // half of its 16384 pages: there may be few large ones left
#endif
    pool.give(pointer);
}

TEST(BlockPool, NoMemoryIsNullAndLeavesThePoolInUse) {
    BlockPool pool;
    EXPECT_EQ(pool.take(SIZE_MAX - 10), nullptr);
    EXPECT_EQ(pool.take(std::size_t{1} << 60), nullptr);
    void* pointer = pool.take(kMiB);
    EXPECT_NE(pointer, nullptr);
    pool.give(pointer);
}

TEST(BlockPool, KeepsNothingWhileToldNotTo) {
    BlockPool pool;
    void* before = pool.take(kMiB);
    pool.keep(false);
    pool.give(before);
    EXPECT_EQ(pool.usage().kept_bytes, 0);
    EXPECT_EQ(pool.usage().used_bytes, 0);
    pool.keep(true);
    pool.give(pool.take(kMiB));
    EXPECT_GT(pool.usage().kept_bytes, 0);
}

TEST(BlockPool, ThreadsTakeAndGiveForEachOther) {
    BlockPool pool;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&pool, t] {
            for (int i = 0; i < 300; ++i) {
                auto* pointer = static_cast<unsigned char*>(pool.take(BlockPool::kLeast * (1 + (i + t) % 5)));
                std::memset(pointer, t, BlockPool::kLeast);
                EXPECT_EQ(pointer[1000], t);
                pool.give(pointer);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(pool.usage().used_bytes, 0);
}

}  // namespace
}  // namespace dnnsuite::host
