// SPDX-License-Identifier: MIT
#include "host/heap.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <memory>

namespace dnnsuite::host {
namespace {

long page_faults() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

/// Page faults of ten rounds of allocating, filling and freeing 8 MiB.
long page_faults_of_rounds() {
    const long before = page_faults();
    for (int i = 0; i < 10; ++i) {
        std::unique_ptr<void, decltype(&std::free)> block(std::malloc(8 << 20), &std::free);
        std::memset(block.get(), i, 8 << 20);
        EXPECT_EQ(static_cast<volatile unsigned char*>(block.get())[12345], i);
    }
    return page_faults() - before;
}

TEST(Heap, RetainedBlocksAreNotFaultedAgain) {
#if !defined(__GLIBC__) || defined(__SANITIZE_ADDRESS__)
    GTEST_SKIP() << "glibc's malloc is not in use";
#endif
    constexpr long pages = 8 << 20 >> 12;
    ASSERT_TRUE(heap_release());
    EXPECT_GT(page_faults_of_rounds(), 9 * pages);  // mapped anew each round
    ASSERT_TRUE(heap_retain());
    page_faults_of_rounds();  // the heap grows once
    EXPECT_LT(page_faults_of_rounds(), pages);
    ASSERT_TRUE(heap_release());
    EXPECT_GT(page_faults_of_rounds(), 9 * pages);
}

}  // namespace
}  // namespace dnnsuite::host
