// SPDX-License-Identifier: MIT
#pragma once

#include "fused/arguments.hpp"
#include "fused/cpu/isa.hpp"

namespace dnnsuite::fused {

enum class Distribution { kUniform, kNormal, kBernoulli, kExponential };

/// y [B, count]: numbers of each model from its generator (key, step), see `random_kernel.cpp`. `first` and `second` are
/// the bounds, mean and deviation, the probability of a 1, or the rate.
struct RandomArguments {
    DType dtype;
    Distribution distribution;
    Rows rows;  // of y: `kRandomRow` numbers of a model each, fewer in its last
    int64_t count;
    double first, second;
    const int64_t* rng;
    int64_t rng_stride, rng_item_stride;
    void* y;
};

constexpr int64_t kRandomRow = 64;  // numbers that the same calls of a generator make

DNNSUITE_KERNEL(random_numbers, const RandomArguments& args, int64_t begin, int64_t end)

}  // namespace dnnsuite::fused
