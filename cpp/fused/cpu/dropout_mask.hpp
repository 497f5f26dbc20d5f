// SPDX-License-Identifier: MIT
// 128 dropout factors at a time: 16 generator calls in 16 lanes give eight vectors of 16-bit numbers.
#pragma once

#include "fused/cpu/vector_math.hpp"
#include "fused/math/dropout.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

/// Room that `dropout_factors` needs for `count` factors: whole blocks around the range.
constexpr int64_t dropout_room(int64_t count) { return count + 2 * kDropoutBlock; }

/// select() with the mask of a comparison of integers of the same size.
DNNSUITE_HD Vec<float> select_float(const Vec<int32_t>::Mask& mask, const Vec<float>& a, const Vec<float>& b) {
    Vec<float> r;
    constexpr int kParts = Vec<float>::kParts;
    DNNSUITE_EACH r.part[i] = mask.part[i] ? a.part[i] : b.part[i];
    return r;
}

DNNSUITE_HD void store_factors(const Vec<float>& factors, float* to) { factors.store(to); }
DNNSUITE_HD void store_factors(const Vec<float>& factors, double* to) {
    float lanes[kLanes];
    factors.store(lanes);
    for (int i = 0; i < kLanes; ++i) to[i] = static_cast<double>(lanes[i]);
}

/// The factors (0 or the scale) of block `block` to `to[0..127]`.
template <class T>
DNNSUITE_HD void dropout_block(const DropoutRule& rule, uint64_t block, T* to) {
    using U = Vec<uint32_t>;
    const uint64_t first = block * 16;
    U word[4] = {U(static_cast<uint32_t>(first)) + iota<uint32_t>(), U(static_cast<uint32_t>(first >> 32)),
                 U(rule.step0), U(rule.step1)};
    philox4x32<kDropoutRounds>(word, rule.key0, rule.key1);
    const Vec<int32_t> threshold(static_cast<int32_t>(rule.threshold));
    const Vec<float> dropped(0.0f), kept(rule.scale);
    _Pragma("GCC unroll 4") for (int w = 0; w < 4; ++w) {
        const Vec<int32_t> low = bits_as<int32_t>(word[w] & U(0xFFFFu));
        const Vec<int32_t> high = bits_as<int32_t>(word[w].shift_right(16));
        store_factors(select_float(low < threshold, dropped, kept), to + 32 * w);
        store_factors(select_float(high < threshold, dropped, kept), to + 32 * w + 16);
    }
}

/// Makes the factors of elements [first, first + count) in `room` and returns where they begin.
template <class T>
__attribute__((noinline)) const T* dropout_factors(const DropoutRule& rule, int64_t first, int64_t count, T* room) {
    const int64_t begin = first / kDropoutBlock, end = (first + count + kDropoutBlock - 1) / kDropoutBlock;
    for (int64_t block = begin; block < end; ++block)
        dropout_block(rule, static_cast<uint64_t>(block), room + (block - begin) * kDropoutBlock);
    return room + (first - begin * kDropoutBlock);
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
