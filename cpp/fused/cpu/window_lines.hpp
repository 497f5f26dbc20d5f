// SPDX-License-Identifier: MIT
// Windows of lines of a convolution's result as rows of a matrix, and back: [pixel, KH, KW, channels of a group].
#pragma once

#include "fused/cpu/tasks.hpp"
#include "fused/cpu/vector.hpp"
#include "fused/cpu/window_convolution_kernel.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

template <class T>
DNNSUITE_HD void copy_run(const T* from, T* to, int64_t count) {
    for_each_vector(count, [&](int64_t i, int64_t n)
                               __attribute__((always_inline)) { Vec<T>::load(from + i, n).store(to + i, n); });
}

template <class T>
DNNSUITE_HD void add_run(const T* from, T* to, int64_t count) {
    for_each_vector(count, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        (Vec<T>::load(to + i, n) + Vec<T>::load(from + i, n)).store(to + i, n);
    });
}

/// What the windows of one line see of one line of the image: numbers [first, first + count) of a row of taps come from
/// `pixel` on; the others are padding.
struct Run {
    int64_t window, pixel, first, count;
};

/// Calls body(run) for every window of a line and, if a row of taps is no run of the image's numbers, every tap: that is
/// so with dilation and with groups. Windows that overlap come in turns: what was just stored is not loaded at once.
template <class Body>
DNNSUITE_HD void each_run(const WindowConvolutionArguments& args, int64_t turns, const Body& body) {
    const Window& w = args.width;
    const int64_t C = args.group_inputs();
    if (args.groups == 1 && w.dilation == 1) {
        for (int64_t turn = 0; turn < turns; ++turn) {
            for (int64_t o = turn; o < w.output; o += turns) {
                const int64_t begin = o * w.stride - w.padding, room = w.input - begin;
                const int64_t first = begin < 0 ? -begin : 0, last = room < w.kernel ? room : w.kernel;
                if (first < last)
                    body(Run{o, begin + first, first * C, (last - first) * C});
                else
                    body(Run{o, 0, 0, 0});
            }
        }
        return;
    }
    for (int64_t k = 0; k < w.kernel; ++k) {
        for (int64_t o = 0; o < w.output; ++o) {
            const int64_t pixel = o * w.stride - w.padding + k * w.dilation;
            body(Run{o, pixel, k * C, pixel >= 0 && pixel < w.input ? C : 0});
        }
    }
}

/// The line of the image that row `tap` of filters meets for line `line` of the results; -1 if it is padding.
inline int64_t image_line(const WindowConvolutionArguments& args, int64_t line, int64_t tap) {
    const Window& h = args.height;
    const int64_t y = line % h.output * h.stride - h.padding + tap * h.dilation;
    return y < 0 || y >= h.input ? -1 : line / h.output * h.input + y;
}

/// Windows of lines [first, last) of images x, of one group, to rows of depth() numbers.
template <class T>
void cut_lines(const WindowConvolutionArguments& args, const T* x, int64_t first, int64_t last, T* to) {
    const int64_t C = args.group_inputs(), depth = args.depth(), row = args.width.kernel * C;
    const bool by_taps = args.groups > 1 || args.width.dilation > 1;
    for (int64_t line = first; line < last; ++line, to += args.width.output * depth) {
        for (int64_t tap = 0; tap < args.height.kernel; ++tap) {
            const int64_t y = image_line(args, line, tap);
            T* const taps = to + tap * row;
            if (y < 0) {
                for (int64_t o = 0; o < args.width.output; ++o) fill(taps + o * depth, row, T(0));
                continue;
            }
            const T* const from = x + y * args.width.input * args.inputs;
            each_run(args, 1, [&](const Run& run) __attribute__((always_inline)) {
                T* const window = taps + run.window * depth;
                copy_run(from + run.pixel * args.inputs, window + run.first, run.count);
                if (by_taps) {
                    if (run.count == 0) fill(window + run.first, C, T(0));
                } else if (run.count < row) {
                    fill(window, run.first, T(0));
                    fill(window + run.first + run.count, row - run.first - run.count, T(0));
                }
            });
        }
    }
}

/// Adds windows of lines [first, last) to the images' pixels, in the order of lines and taps.
template <class T>
void add_lines(const WindowConvolutionArguments& args, const T* from, int64_t first, int64_t last, T* x) {
    const int64_t C = args.group_inputs(), depth = args.depth(), row = args.width.kernel * C;
    const int64_t turns = (args.width.kernel + args.width.stride - 1) / args.width.stride;
    for (int64_t line = first; line < last; ++line, from += args.width.output * depth) {
        for (int64_t tap = 0; tap < args.height.kernel; ++tap) {
            const int64_t y = image_line(args, line, tap);
            if (y < 0) continue;
            T* const to = x + y * args.width.input * args.inputs;
            const T* const taps = from + tap * row;
            each_run(args, turns, [&](const Run& run) __attribute__((always_inline)) {
                add_run(taps + run.window * depth + run.first, to + run.pixel * args.inputs, run.count);
            });
        }
    }
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
