// SPDX-License-Identifier: MIT
#pragma once

#include "fused/arguments.hpp"
#include "fused/cpu/isa.hpp"

namespace dnnsuite::fused {

constexpr int64_t kLowRankPart = 192;  // rows of a task of the forward pass: a multiple of every block

/// Rows that stay in the second cache while all of their products are computed; more of a large rank, whose factors would
/// be read, and their gradients written, too often. A multiple of a tile's.
inline int64_t low_rank_block(const LowRankArguments& args) {
    const int64_t wide = args.inputs > args.outputs ? args.inputs : args.outputs;
    const int64_t rows = (args.most < 32 ? 49152 : 4 * 49152) / (wide > 0 ? wide : 1);
    return rows >= 96 ? 96 : rows >= 48 ? 48 : rows >= 24 ? 24 : 12;
}

/// Numbers of scratch that a task needs: `up` and its gradient, turned, and a block of x, factors, grad and hidden.
inline int64_t low_rank_scratch(const LowRankArguments& args) {
    const int64_t wide = args.inputs > args.outputs ? args.inputs : args.outputs;
    return 2 * args.most * (args.outputs + 16) + low_rank_block(args) * (3 * wide + args.most) + 256;
}

/// Tasks [begin, end): rows [first, last) of a model each.
struct LowRankTask {
    int64_t model, first, last;
};
DNNSUITE_KERNEL(low_rank, const LowRankArguments& args, const LowRankTask& task, void* scratch)
/// All rows of a model.
DNNSUITE_KERNEL(low_rank_backward, const LowRankArguments& args, int64_t model, void* scratch)

}  // namespace dnnsuite::fused
