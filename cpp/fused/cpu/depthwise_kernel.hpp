// SPDX-License-Identifier: MIT
#pragma once

#include "fused/arguments.hpp"
#include "fused/cpu/isa.hpp"

namespace dnnsuite::fused {

/// Tasks [begin, end) of `rows.tasks()`. `scratch` holds depthwise_scratch(args) numbers of 8 bytes.
DNNSUITE_KERNEL(depthwise_forward, const DepthwiseArguments& args, int64_t begin, int64_t end, void* scratch)
DNNSUITE_KERNEL(depthwise_backward_input, const DepthwiseArguments& args, int64_t begin, int64_t end, void* scratch)
DNNSUITE_KERNEL(depthwise_backward_weight, const DepthwiseArguments& args, int64_t begin, int64_t end, void* scratch)

/// True if the channels do not fill a vector: cpu/depthwise_narrow.hpp.
inline bool is_narrow(const DepthwiseArguments& args) { return args.channels < 16; }

/// Lines that are laid out at a time, and places for the pixels of each turn of one.
inline int64_t laid_lines(const DepthwiseArguments& args) {
    return (args.height.kernel - 1) * args.height.dilation + 1;
}
inline int64_t laid_margin(const Window& w) { return (w.kernel - 1) * w.dilation / w.stride + 1; }
inline int64_t laid_places(const DepthwiseArguments& args, bool transposed) {
    const Window& w = args.width;
    return transposed ? w.input / w.stride + w.output + 2 * laid_margin(w) + 2 : w.output + laid_margin(w);
}
/// Numbers of one line: vectors may begin at its last.
inline int64_t laid_numbers(int64_t places, int64_t turns, int64_t channels) {
    return (places * turns * channels + 15) / 16 * 16 + 80;
}

/// The taps of every line and every column, then the sums of a task; of few channels, lines that are laid out.
inline int64_t depthwise_scratch(const DepthwiseArguments& args) {
    const auto positions = [](const Window& w) { return (w.input > w.output ? w.input : w.output) * (w.kernel + 1); };
    const int64_t taps = positions(args.height) + positions(args.width), C = args.channels;
    if (!is_narrow(args)) return taps + (C + 15) / 16 * 16 * (args.taps() + 1);
    const int64_t forward = laid_numbers(laid_places(args, false), args.width.stride, C);
    const int64_t back = laid_numbers(laid_places(args, true), 1, C);
    const int64_t line = (args.width.input * C + 31) / 16 * 16;
    return taps + laid_lines(args) * ((forward > back ? forward : back) + 1) + 20 * (args.taps() + 1) + line +
           args.width.stride * args.width.kernel;
}

}  // namespace dnnsuite::fused
