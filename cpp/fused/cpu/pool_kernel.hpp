// SPDX-License-Identifier: MIT
#pragma once

#include "fused/arguments.hpp"
#include "fused/cpu/isa.hpp"

namespace dnnsuite::fused {

/// Tasks [begin, end) of `rows.tasks()`. `streams`: the result is larger than the caches. `scratch` holds
/// pool_scratch(args) numbers of 8 bytes.
DNNSUITE_KERNEL(max_pool, const PoolArguments& args, int64_t begin, int64_t end, void* scratch)
DNNSUITE_KERNEL(max_pool_backward, const PoolArguments& args, bool streams, int64_t begin, int64_t end, void* scratch)
DNNSUITE_KERNEL(avg_pool, const PoolArguments& args, int64_t begin, int64_t end, void* scratch)
DNNSUITE_KERNEL(avg_pool_backward, const PoolArguments& args, bool streams, int64_t begin, int64_t end, void* scratch)

/// The taps of every line and every column, how many pixels each window of a dimension counts, and a line of the image.
inline int64_t pool_scratch(const PoolArguments& args) {
    const auto positions = [](const Window& w) {
        return (w.input > w.output ? w.input : w.output) * (w.kernel + 1) + w.output;
    };
    return positions(args.height) + positions(args.width) + args.width.input * args.channels + 16;
}

}  // namespace dnnsuite::fused
