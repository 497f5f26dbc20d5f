// SPDX-License-Identifier: MIT
// The dropout of a run of elements as bits in memory, 1 for what is kept, of which a warp makes 256 at a time: each lane
// makes one of the generator's calls, which decides over eight elements, 16 apart.
#pragma once

#include "fused/kernels/device.cuh"

namespace dnnsuite::fused::kernels {

/// Words of room for `count` elements that begin anywhere: those of whole pairs of blocks, and one that is read in vain.
inline constexpr __host__ __device__ int64_t mask_words(int64_t count) {
    const int64_t blocks = (count + 2 * (kDropoutBlock - 1)) / kDropoutBlock;
    return (blocks + 1) / 2 * 2 * (kDropoutBlock / 32) + 1;
}

/// Where in the room the bit of element `first` of a model is, when the run begins with it.
__device__ __forceinline__ unsigned mask_offset(int64_t first) { return static_cast<unsigned>(first) % kDropoutBlock; }

/// Writes the bits of elements first, first + 1, ... `count` of them. `warp` of `warps` makes its share; those that read
/// have to wait for it. All lanes must call it.
__device__ __forceinline__ void draw_mask(const DropoutRule& rule, int64_t first, int64_t count, uint32_t* room,
                                          int warp = 0, int warps = 1) {
    constexpr unsigned kHalf = 0xFFFFu;
    const unsigned lane = threadIdx.x;
    const int64_t begin = first / kDropoutBlock, end = (first + count + kDropoutBlock - 1) / kDropoutBlock;
    for (int64_t block = begin + 2 * warp; block < end; block += 2 * warps) {
        const uint64_t call = static_cast<uint64_t>(block) * 16 + lane;  // lanes 16 and on: of the next block
        uint32_t word[4] = {static_cast<uint32_t>(call), static_cast<uint32_t>(call >> 32), rule.step0, rule.step1};
        philox4x32<kDropoutRounds>(word, rule.key0, rule.key1);
        uint32_t own = 0;
        DNNSUITE_UNROLL for (unsigned w = 0; w < 4; ++w) {
            const uint32_t low = __ballot_sync(kAllLanes, (word[w] & kHalf) >= rule.threshold);
            const uint32_t high = __ballot_sync(kAllLanes, word[w] >> 16 >= rule.threshold);
            if (lane == w) own = (low & kHalf) | high << 16;
            if (lane == w + 4) own = low >> 16 | (high & ~kHalf);
        }
        if (lane < 8) room[(block - begin) * 4 + lane] = own;
    }
}

/// The bits from place `at` on, at least eight of them.
__device__ __forceinline__ uint32_t mask_bits(const uint32_t* room, unsigned at) {
    const uint64_t pair = static_cast<uint64_t>(room[at / 32 + 1]) << 32 | room[at / 32];
    return static_cast<uint32_t>(pair >> at % 32);
}

}  // namespace dnnsuite::fused::kernels
