// SPDX-License-Identifier: MIT
// Philox4x32: a counter-based generator. Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2,
// 3", SC'11. Ten rounds is the paper's recommendation with a margin, seven is the fewest that passes BigCrush.
#pragma once

#include "fused/math/portable.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

DNNSUITE_HD void multiply_wide(uint32_t a, uint32_t factor, uint32_t& high, uint32_t& low) {
    const uint64_t product = static_cast<uint64_t>(a) * factor;
    high = static_cast<uint32_t>(product >> 32);
    low = static_cast<uint32_t>(product);
}

/// Replaces the 128-bit counter by 128 random bits. U is uint32_t, or a vector of them: one counter per lane.
template <int Rounds, class U>
DNNSUITE_HD void philox4x32(U (&counter)[4], uint32_t key0, uint32_t key1) {
    DNNSUITE_UNROLL for (int round = 0; round < Rounds; ++round) {
        U high0, low0, high1, low1;
        multiply_wide(counter[0], 0xD2511F53u, high0, low0);
        multiply_wide(counter[2], 0xCD9E8D57u, high1, low1);
        counter[0] = high1 ^ counter[1] ^ U(key0);
        counter[1] = low1;
        counter[2] = high0 ^ counter[3] ^ U(key1);
        counter[3] = low0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
