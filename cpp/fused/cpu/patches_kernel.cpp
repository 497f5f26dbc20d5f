// SPDX-License-Identifier: MIT
// Windows of images as rows of a matrix, and back. Channels last, what a window sees of a line of the image is one run
// of numbers. Compiled once per instruction set.
#include "fused/cpu/patches_kernel.hpp"

#include "fused/cpu/tasks.hpp"
#include "fused/cpu/vector.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

/// Pixels `first` to `last` of a window that lie in the image; the first of the window is at `begin`.
struct Seen {
    int64_t begin, first, last;
};

DNNSUITE_HD Seen seen_by(const Window& w, int64_t window) {
    const int64_t begin = window * w.stride - w.padding, room = w.input - begin;
    const int64_t last = room < w.kernel ? room : w.kernel;
    const int64_t first = begin < 0 ? -begin : 0;
    return {begin, first, last > first ? last : first};
}

/// One row of windows.
template <class T>
void cut(const PatchArguments& args, int64_t image, int64_t row, const T* from, T* to) {
    const Window &h = args.height, &w = args.width;
    const int64_t C = args.channels, line = w.kernel * C;
    from += image * h.input * w.input * C;
    for (int64_t column = 0; column < w.output; ++column) {
        const Seen x = seen_by(w, column);
        for (int64_t k = 0; k < h.kernel; ++k, to += line) {
            const int64_t y = row * h.stride - h.padding + k;
            if (y < 0 || y >= h.input || x.first == x.last) {
                fill(to, line, T(0));
                continue;
            }
            if (x.first > 0) fill(to, x.first * C, T(0));
            copy_run(from + (y * w.input + x.begin + x.first) * C, to + x.first * C, (x.last - x.first) * C);
            if (x.last < w.kernel) fill(to + x.last * C, (w.kernel - x.last) * C, T(0));
        }
    }
}

/// One line of an image. Windows that overlap are added in turns: what was just stored is not loaded again at once.
template <class T>
void put(const PatchArguments& args, int64_t image, int64_t y, const T* from, T* to) {
    const Window &h = args.height, &w = args.width;
    const int64_t C = args.channels, line = w.kernel * C, window = h.kernel * line;
    const int64_t turns = (w.kernel + w.stride - 1) / w.stride;
    fill(to, w.input * C, T(0));
    for (int64_t k = 0; k < h.kernel; ++k) {
        const int64_t at = y + h.padding - k;
        if (at < 0 || at % h.stride != 0 || at / h.stride >= h.output) continue;
        const T* const row = from + (image * h.output + at / h.stride) * w.output * window + k * line;
        for (int64_t turn = 0; turn < turns; ++turn) {
            for (int64_t column = turn; column < w.output; column += turns) {
                const Seen x = seen_by(w, column);
                const int64_t count = (x.last - x.first) * C;
                if (count > 0) add_run(row + column * window + x.first * C, to + (x.begin + x.first) * C, count);
            }
        }
    }
}

template <class T>
void cut_rows_of(const PatchArguments& args, int64_t begin, int64_t end) {
    const int64_t rows = args.height.output;
    const int64_t row = args.width.output * args.height.kernel * args.width.kernel * args.channels;
    for (int64_t task = begin; task < end; ++task)
        cut(args, task / rows, task % rows, at<T>(args.from, 0), mutable_at<T>(args.to, task * row));
}

template <class T>
void put_lines_of(const PatchArguments& args, int64_t begin, int64_t end) {
    const int64_t lines = args.height.input, line = args.width.input * args.channels;
    for (int64_t task = begin; task < end; ++task)
        put(args, task / lines, task % lines, at<T>(args.from, 0), mutable_at<T>(args.to, task * line));
}

}  // namespace

void patches(const PatchArguments& args, int64_t begin, int64_t end) {
    if (args.dtype == DType::kFloat64) return cut_rows_of<double>(args, begin, end);
    cut_rows_of<float>(args, begin, end);
}

void add_patches(const PatchArguments& args, int64_t begin, int64_t end) {
    if (args.dtype == DType::kFloat64) return put_lines_of<double>(args, begin, end);
    put_lines_of<float>(args, begin, end);
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
