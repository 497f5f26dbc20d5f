// SPDX-License-Identifier: MIT
#include "fused/cpu/reduction.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

template <class T>
class VecTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(VecTest, Types);

TYPED_TEST(VecTest, LoadsAndStoresParts) {
    using T = TypeParam;
    T from[kLanes], to[kLanes + 1];
    for (int i = 0; i < kLanes; ++i) from[i] = T(i + 1);
    for (int64_t count = 1; count <= kLanes; ++count) {
        T whole[kLanes];
        Vec<T>::load(from, count).store(whole);
        for (int i = 0; i < kLanes; ++i) EXPECT_EQ(whole[i], i < count ? T(i + 1) : T(0));
        for (T& value : to) value = T(-1);
        Vec<T>::load(from).store(to, count);
        for (int i = 0; i <= kLanes; ++i) EXPECT_EQ(to[i], i < count ? T(i + 1) : T(-1));
    }
}

// What follows may be another process's, or nobody's.
TYPED_TEST(VecTest, TouchesNothingBehindAPart) {
    using T = TypeParam;
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    char* const pages =
        static_cast<char*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_EQ(mprotect(pages + page, page, PROT_NONE), 0);
    for (int64_t count = 1; count <= kLanes; ++count) {
        T* const last = reinterpret_cast<T*>(pages + page) - count;
        Vec<T>(T(7)).store(last, count);
        T whole[kLanes];
        Vec<T>::load(last, count).store(whole);
        for (int i = 0; i < kLanes; ++i) EXPECT_EQ(whole[i], i < count ? T(7) : T(0));
    }
    munmap(pages, 2 * page);
}

TEST(IntegerVec, LoadsAndStoresParts) {
    int32_t from[kLanes], to[kLanes];
    for (int i = 0; i < kLanes; ++i) from[i] = i + 1;
    for (int64_t count = 1; count <= kLanes; ++count) {
        for (int32_t& value : to) value = -1;
        Vec<int32_t>::load(from, count).store(to, count);
        for (int i = 0; i < kLanes; ++i) EXPECT_EQ(to[i], i < count ? i + 1 : -1);
    }
}

TYPED_TEST(VecTest, ComputesLaneByLane) {
    using T = TypeParam;
    const Vec<T> a = iota<T>(), b(T(4));
    T sums[kLanes], chosen[kLanes], kept[kLanes];
    (a * b + a).store(sums);
    select(a < b, a, b).store(chosen);
    keep_first(a, 3).store(kept);
    for (int i = 0; i < kLanes; ++i) {
        EXPECT_EQ(sums[i], T(5 * i));
        EXPECT_EQ(chosen[i], T(i < 4 ? i : 4));
        EXPECT_EQ(kept[i], T(i < 3 ? i : 0));
    }
}

TYPED_TEST(VecTest, ReducesInOneOrder) {
    using T = TypeParam;
    T lanes[kLanes], tree[kLanes];
    for (int i = 0; i < kLanes; ++i) lanes[i] = tree[i] = T(1) / T(i + 3);
    for (int half = kLanes / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) tree[i] += tree[i + half];
    }
    EXPECT_EQ(sum(Vec<T>::load(lanes)), tree[0]);  // to the bit
    for (int top = 0; top < kLanes; ++top) {
        T values[kLanes];
        for (int i = 0; i < kLanes; ++i) values[i] = T(i == top ? 5 : -i);
        EXPECT_EQ(largest(Vec<T>::load(values)), T(5)) << "at " << top;
    }
}

}  // namespace
}  // namespace dnnsuite::fused::DNNSUITE_ISA
