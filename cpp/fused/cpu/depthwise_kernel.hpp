// SPDX-License-Identifier: MIT
#pragma once

#include "fused/arguments.hpp"
#include "fused/cpu/isa.hpp"

namespace dnnsuite::fused {

/// Tasks [begin, end) of `rows.tasks()`. `scratch` holds depthwise_scratch(args) numbers of 8 bytes.
DNNSUITE_KERNEL(depthwise_forward, const DepthwiseArguments& args, int64_t begin, int64_t end, void* scratch)
DNNSUITE_KERNEL(depthwise_backward_input, const DepthwiseArguments& args, int64_t begin, int64_t end, void* scratch)
DNNSUITE_KERNEL(depthwise_backward_weight, const DepthwiseArguments& args, int64_t begin, int64_t end, void* scratch)

/// The taps of every line and every column, then the sums of a task.
inline int64_t depthwise_scratch(const DepthwiseArguments& args) {
    const auto positions = [](const Window& w) { return (w.input > w.output ? w.input : w.output) * (w.kernel + 1); };
    return positions(args.height) + positions(args.width) + (args.channels + 15) / 16 * 16 * (args.taps() + 1);
}

}  // namespace dnnsuite::fused
