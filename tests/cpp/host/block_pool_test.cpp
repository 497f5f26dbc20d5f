// SPDX-License-Identifier: MIT
#include "host/block_pool.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstring>
#include <random>
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

TEST(BlockPool, RoundsByASixteenthAtMost) {
    for (const std::size_t size : {std::size_t{70'000}, kMiB + 1, 3 * kMiB - 64, 100 * kMiB + 12345}) {
        const std::size_t bytes = BlockPool::rounded(size);
        EXPECT_GE(bytes, size);
        EXPECT_LE(static_cast<double>(bytes), static_cast<double>(size) * 17 / 16 + 4096);
        EXPECT_EQ(bytes % 4096, 0U);
    }
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
    const long before = page_faults();
    void* second = pool.take(8 * kMiB - 1000);  // of about its size
    EXPECT_EQ(second, first);
    std::memset(second, 2, 8 * kMiB - 1000);
    EXPECT_LT(page_faults() - before, 100);
    pool.give(second);
    EXPECT_EQ(pool.usage().used_bytes, 0);
    pool.release();
    EXPECT_EQ(pool.usage().kept_bytes, 0);
}

TEST(BlockPool, KeepsNoMoreThanWasInUse) {
    BlockPool pool;
    std::mt19937 random(7);
    std::vector<void*> held;
    for (int i = 0; i < 2000; ++i) {
        if (held.size() < 4 || random() % 2 == 0) held.push_back(pool.take(BlockPool::kLeast + random() % (4 * kMiB)));
        if (held.size() > 8 || random() % 2 == 0) {
            const std::size_t at = random() % held.size();
            pool.give(held[at]);
            held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
        }
        const BlockPool::Usage usage = pool.usage();
        EXPECT_LE(static_cast<double>(usage.used_bytes + usage.kept_bytes),
                  BlockPool::kSlack * static_cast<double>(usage.most_used_bytes) + 1);
    }
    for (void* pointer : held) pool.give(pointer);
    EXPECT_EQ(pool.usage().used_bytes, 0);
}

TEST(BlockPool, NoMemoryIsNullAndLeavesThePoolInUse) {
    BlockPool pool;
    EXPECT_EQ(pool.take(SIZE_MAX - 10), nullptr);
    EXPECT_EQ(pool.take(std::size_t{1} << 60), nullptr);
    void* pointer = pool.take(kMiB);
    EXPECT_NE(pointer, nullptr);
    pool.give(pointer);
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
