// SPDX-License-Identifier: MIT
// The dropout mask: a pure function of (key, step, element), so that it is recomputed in the backward pass and
// does not depend on how many models there are, where this one sits, or how many threads run.
//
// Element e of a model's tensor (row-major, model dimension left out) uses 16 of the 128 bits of
//     Philox4x32-7(counter = (c_lo, c_hi, step_lo, step_hi), key = (key_lo, key_hi)),  c = (e / 128) * 16 + e % 16,
// namely lane k = (e % 128) / 16: word k / 2, its low half for even k. The element is dropped if they are below
// t = round(p * 65536), else scaled by 1 / (1 - t / 65536): the expected value is exact, also for rounded p.
#pragma once

#include "fused/math/philox.hpp"

namespace dnnsuite::fused {

/// The dropout of all models: rates p [B] and generators (key, step) [B, 2]; strides in elements. Null p: none.
struct DropoutArguments {
    const float* p = nullptr;
    int64_t p_stride = 0;
    const int64_t* rng = nullptr;
    int64_t rng_stride = 0, rng_item_stride = 0;
};

namespace DNNSUITE_ISA {

constexpr int kDropoutRounds = 7;
constexpr int kDropoutBlock = 128;  // elements that share 16 generator calls

/// One model's dropout in one step.
struct DropoutRule {
    uint32_t key0, key1, step0, step1;
    uint32_t threshold;  // of 65536
    float scale;         // of the kept elements; 0 when everything is dropped
};

DNNSUITE_HD DropoutRule dropout_rule(float p, int64_t key, int64_t step) {
    const float clamped = p < 0.0f ? 0.0f : (p > 1.0f ? 1.0f : p);
    const uint32_t threshold = static_cast<uint32_t>(::rintf(clamped * 65536.0f));
    const float scale = threshold < 65536u ? 65536.0f / static_cast<float>(65536u - threshold) : 0.0f;
    const uint64_t k = static_cast<uint64_t>(key), s = static_cast<uint64_t>(step);
    return {static_cast<uint32_t>(k),
            static_cast<uint32_t>(k >> 32),
            static_cast<uint32_t>(s),
            static_cast<uint32_t>(s >> 32),
            threshold,
            scale};
}

DNNSUITE_HD DropoutRule dropout_rule(const DropoutArguments& all, int64_t model) {
    const int64_t* rng = all.rng + model * all.rng_stride;
    return dropout_rule(all.p[model * all.p_stride], rng[0], rng[all.rng_item_stride]);
}

/// The factor of one element: 0 or `rule.scale`. CUDA kernels and tests use it; the CPU makes 128 at a time.
DNNSUITE_HD float dropout_factor(const DropoutRule& rule, uint64_t element) {
    const uint64_t c = (element / kDropoutBlock) * 16 + element % 16;
    uint32_t word[4] = {static_cast<uint32_t>(c), static_cast<uint32_t>(c >> 32), rule.step0, rule.step1};
    philox4x32<kDropoutRounds>(word, rule.key0, rule.key1);
    const unsigned lane = static_cast<unsigned>(element % kDropoutBlock) / 16;
    const uint32_t pair = lane / 2 == 0 ? word[0] : lane / 2 == 1 ? word[1] : lane / 2 == 2 ? word[2] : word[3];
    const uint32_t bits = lane % 2 == 0 ? pair & 0xFFFFu : pair >> 16;
    return bits < rule.threshold ? 0.0f : rule.scale;
}

}  // namespace DNNSUITE_ISA
}  // namespace dnnsuite::fused
