// SPDX-License-Identifier: MIT
// Windows of lines of a convolution's result as rows of a matrix, and back: [pixel, KD, KH, KW, channels of a group].
#pragma once

#include "fused/cpu/tasks.hpp"
#include "fused/cpu/vector.hpp"
#include "fused/cpu/window_convolution_kernel.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

/// Windows of a line that see the image with one tap: [first, last), the first of them `pixel`.
struct Span {
    int64_t first, last, pixel;
};

inline Span span_of(const Window& w, int64_t tap) {
    const int64_t at = tap * w.dilation - w.padding, room = w.input - at;
    const int64_t first = at < 0 ? (-at + w.stride - 1) / w.stride : 0;
    const int64_t end = room > 0 ? (room - 1) / w.stride + 1 : 0, last = end < w.output ? end : w.output;
    return {first, first < last ? last : first, at + first * w.stride};
}

/// True if a row of taps is one run of the image's numbers: not with dilation or groups.
inline bool has_runs(const WindowConvolutionArguments& args) { return args.groups == 1 && args.width.dilation == 1; }

/// What a window sees of a line: numbers [first, first + count) of a row of taps come from `pixel` on; the others are
/// padding.
struct Run {
    int64_t pixel, first, count;
};

inline Run run_of(const Window& w, int64_t channels, int64_t window) {
    const int64_t begin = window * w.stride - w.padding, room = w.input - begin;
    const int64_t first = begin < 0 ? -begin : 0, last = room < w.kernel ? room : w.kernel;
    return {begin + first, first * channels, first < last ? (last - first) * channels : 0};
}

/// use(tap, the line of the image that this row of a filter's taps meets for line `line` of the results): -1 if it is
/// padding.
template <class Use>
void each_row_of_taps(const WindowConvolutionArguments& args, int64_t line, const Use& use) {
    const Window &p = args.planes, &h = args.height;
    const int64_t above = line / h.output, first_y = line % h.output * h.stride - h.padding;
    const int64_t sample = p.output == 1 ? above : above / p.output;
    int64_t tap = 0, z = (above - sample * p.output) * p.stride - p.padding;
    for (int64_t k = 0; k < p.kernel; ++k, z += p.dilation) {
        const bool inside = z >= 0 && z < p.input;
        int64_t y = first_y;
        for (int64_t r = 0; r < h.kernel; ++r, ++tap, y += h.dilation)
            use(tap, inside && y >= 0 && y < h.input ? (sample * p.input + z) * h.input + y : -1);
    }
}

/// One row of taps of a line's windows; `from`: the line of the image.
template <class T>
void cut_taps(const WindowConvolutionArguments& args, const T* from, T* to) {
    const Window& w = args.width;
    const int64_t C = args.group_inputs(), depth = args.depth(), row = w.kernel * C;
    if (has_runs(args)) {
        for (int64_t o = 0; o < w.output; ++o, to += depth) {
            const Run run = run_of(w, C, o);
            if (run.count < row) fill(to, row, T(0));
            copy_run(from + run.pixel * C, to + run.first, run.count);
        }
        return;
    }
    for (int64_t k = 0; k < w.kernel; ++k, to += C) {
        const Span seen = span_of(w, k);
        for (int64_t o = 0; o < seen.first && o < w.output; ++o) fill(to + o * depth, C, T(0));
        const T* pixel = from + seen.pixel * args.inputs;
        for (int64_t o = seen.first; o < seen.last; ++o, pixel += w.stride * args.inputs)
            copy_run(pixel, to + o * depth, C);
        for (int64_t o = seen.last; o < w.output; ++o) fill(to + o * depth, C, T(0));
    }
}

/// Windows of lines [first, last) of images x, of one group, to rows of depth() numbers.
template <class T>
void cut_lines(const WindowConvolutionArguments& args, const T* x, int64_t first, int64_t last, T* to) {
    const int64_t depth = args.depth(), row = args.width.kernel * args.group_inputs();
    for (int64_t line = first; line < last; ++line, to += args.width.output * depth) {
        each_row_of_taps(args, line, [&](int64_t tap, int64_t y) {
            T* const taps = to + tap * row;
            if (y >= 0)
                cut_taps(args, x + y * args.width.input * args.inputs, taps);
            else
                for (int64_t o = 0; o < args.width.output; ++o) fill(taps + o * depth, row, T(0));
        });
    }
}

/// Adds one row of taps of a line's windows to a line of the image. Windows that overlap come in turns: what was just
/// stored is not loaded again at once.
template <class T>
void add_taps(const WindowConvolutionArguments& args, const T* from, T* to) {
    const Window& w = args.width;
    const int64_t C = args.group_inputs(), depth = args.depth();
    if (has_runs(args)) {
        const int64_t turns = (w.kernel + w.stride - 1) / w.stride;
        for (int64_t turn = 0; turn < turns; ++turn) {
            for (int64_t o = turn; o < w.output; o += turns) {
                const Run run = run_of(w, C, o);
                add_run(from + o * depth + run.first, to + run.pixel * C, run.count);
            }
        }
        return;
    }
    for (int64_t k = 0; k < w.kernel; ++k, from += C) {
        const Span seen = span_of(w, k);
        T* pixel = to + seen.pixel * args.inputs;
        for (int64_t o = seen.first; o < seen.last; ++o, pixel += w.stride * args.inputs)
            add_run(from + o * depth, pixel, C);
    }
}

/// Adds windows of lines [first, last) to the images' pixels, in the order of lines and taps.
template <class T>
void add_lines(const WindowConvolutionArguments& args, const T* from, int64_t first, int64_t last, T* x) {
    const int64_t depth = args.depth(), row = args.width.kernel * args.group_inputs();
    for (int64_t line = first; line < last; ++line, from += args.width.output * depth) {
        each_row_of_taps(args, line, [&](int64_t tap, int64_t y) {
            if (y >= 0) add_taps(args, from + tap * row, x + y * args.width.input * args.inputs);
        });
    }
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
