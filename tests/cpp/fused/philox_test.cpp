// SPDX-License-Identifier: MIT
#include "fused/math/philox.hpp"

#include <gtest/gtest.h>

#include "fused/cpu/vector_math.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

struct Known {
    uint32_t counter[4], key[2], result[4];
};

// Philox4x32-10 of Random123's known-answer file (kat_vectors).
const Known kKnown[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

TEST(Philox, GivesThePublishedNumbers) {
    for (const Known& known : kKnown) {
        uint32_t word[4] = {known.counter[0], known.counter[1], known.counter[2], known.counter[3]};
        philox4x32<10>(word, known.key[0], known.key[1]);
        for (int i = 0; i < 4; ++i) EXPECT_EQ(word[i], known.result[i]) << "word " << i;
    }
}

TEST(Philox, GivesEachLaneWhatAScalarGets) {
    using U = Vec<uint32_t>;
    const uint32_t first = 0xfffffff0u;  // the lanes' counters do not wrap
    U word[4] = {U(first) + iota<uint32_t>(), U(5), U(0x80000001u), U(0xdeadbeefu)};
    philox4x32<7>(word, 0x12345678u, 0x9abcdef0u);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
        uint32_t one[4] = {first + lane, 5, 0x80000001u, 0xdeadbeefu};
        philox4x32<7>(one, 0x12345678u, 0x9abcdef0u);
        for (int i = 0; i < 4; ++i) {
            uint32_t lanes[kLanes];
            word[i].store(lanes);
            EXPECT_EQ(lanes[lane], one[i]) << "lane " << lane << " word " << i;
        }
    }
}

}  // namespace
}  // namespace dnnsuite::fused::DNNSUITE_ISA
