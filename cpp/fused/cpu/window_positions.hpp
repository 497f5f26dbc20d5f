// SPDX-License-Identifier: MIT
// Convolution position by position of the result: a row of the product is a sample, and of the filter only the taps
// that see the image are multiplied. Nothing is cut; on small maps most taps of a filter lie on the padding.
#pragma once

#include <numeric>

#include "fused/cpu/gemm_tile.hpp"
#include "fused/cpu/tasks.hpp"
#include "fused/cpu/window_convolution_kernel.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

/// Taps that see the image from one position of the result, along one dimension: `count` from `first` on, which sees
/// `pixel`.
struct Seen {
    int64_t first, count, pixel;
};

inline Seen seen_from(const Window& w, int64_t position) {
    const int64_t begin = position * w.stride - w.padding, room = w.input - begin;
    const int64_t first = begin < 0 ? (-begin + w.dilation - 1) / w.dilation : 0;
    const int64_t end = room > 0 ? (room - 1) / w.dilation + 1 : 0, last = end < w.kernel ? end : w.kernel;
    return {first, first < last ? last - first : 0, begin + first * w.dilation};
}

/// Taps that a pixel of the image is under, along one dimension: `count` from `first` on, `step` apart. The first is of
/// the window `result`, each next one of that `back` before.
struct Under {
    int64_t first, count, step, result, back;
};

inline Under under(const Window& w, int64_t pixel) {
    const int64_t step = w.stride / std::gcd(w.stride, w.dilation);
    Under found{0, 0, step, 0, w.dilation * step / w.stride};
    for (int64_t k = 0; k < w.kernel; ++k) {
        const int64_t at = pixel + w.padding - k * w.dilation;
        if (at < 0) break;
        if (at % w.stride != 0 || at / w.stride >= w.output) continue;
        if (found.count++ == 0) found.first = k, found.result = at / w.stride;
    }
    return found;
}

/// Pieces of a window that lie equally far apart, in the image and in the filters: numbers.
struct Strip {
    int64_t image = 0, filter = 0, pieces = 0, length = 0, image_step = 0, filter_step = 0;
};

/// A pixel of a volume or of its result.
struct Position {
    int64_t plane, row, column;
};

/// Samples of which positions are multiplied at a time: their images and results stay in the second cache.
inline int64_t positions_at_once(const WindowConvolutionArguments& args) {
    constexpr int64_t kFew = 24;
    const int64_t near = args.kNearNumbers / args.sample_numbers() / kFew * kFew;
    return near > kFew ? near : kFew;
}

/// The products of one group of one model; numbers of the group begin at x, dx, grad and y.
template <class T>
struct Positions {
    const WindowConvolutionArguments& args;
    const T *x, *weight, *grad;  // weight, dweight: [outputs, depth]; of samples [first_sample, last_sample)
    T *y, *dx, *dweight;
    int64_t outputs;

    int64_t image() const { return args.input_pixels() * args.inputs; }
    int64_t result() const { return args.output_pixels() * args.outputs; }

    /// use(strip) for every strip that a position of the result sees.
    template <class Use>
    void each_strip(const Position& at, const Use& use) const {
        const Window &p = args.planes, &h = args.height, &w = args.width;
        const Seen planes = seen_from(p, at.plane), rows = seen_from(h, at.row), columns = seen_from(w, at.column);
        if (rows.count == 0 || columns.count == 0) return;
        const int64_t C = args.group_inputs(), line = w.input * args.inputs;
        Strip first{((planes.pixel * h.input + rows.pixel) * w.input + columns.pixel) * args.inputs,
                    ((planes.first * h.kernel + rows.first) * w.kernel + columns.first) * C};
        for (int64_t plane = 0; plane < planes.count; ++plane) {
            strips_of_plane(first, rows.count, columns.count, use);
            first.image += p.dilation * h.input * line, first.filter += h.kernel * w.kernel * C;
        }
    }

    /// The strips of one plane of taps, of which `rows` and `columns` see the image.
    template <class Use>
    void strips_of_plane(Strip strip, int64_t rows, int64_t columns, const Use& use) const {
        const int64_t C = args.group_inputs(), line = args.width.input * args.inputs;
        if (args.groups == 1 && args.width.dilation == 1) {
            strip.pieces = rows, strip.length = columns * C;
            strip.image_step = args.height.dilation * line, strip.filter_step = args.width.kernel * C;
            return use(strip);
        }
        strip.pieces = columns, strip.length = C;
        strip.image_step = args.width.dilation * args.inputs, strip.filter_step = C;
        for (int64_t r = 0; r < rows; ++r) {
            use(strip);
            strip.image += args.height.dilation * line, strip.filter += args.width.kernel * C;
        }
    }

    /// use(position, samples [first, first + count)) for a few samples at a time, which stay in the second cache.
    template <class Use>
    void each_position(const Use& use) const {
        each_pixel({args.planes.output, args.height.output, args.width.output}, use);
    }
    template <class Use>
    void each_pixel(const Position& end, const Use& use) const {
        const int64_t samples = args.last_sample - args.first_sample, step = positions_at_once(args);
        for (int64_t first = 0; first < samples; first += step) {
            const int64_t count = samples - first < step ? samples - first : step;
            for (int64_t plane = 0; plane < end.plane; ++plane)
                for (int64_t row = 0; row < end.row; ++row)
                    for (int64_t column = 0; column < end.column; ++column) use({plane, row, column}, first, count);
        }
    }

    /// Where a position's outputs lie, of a sample.
    int64_t place(const Position& at, int64_t sample) const {
        const int64_t pixel = (at.plane * args.height.output + at.row) * args.width.output + at.column;
        return sample * result() + pixel * args.outputs;
    }

    /// `panels`: packed filters, or null, and sums run along the windows.
    void forward(const T* panels, const T* bias) const {
        each_position([&](const Position& at, int64_t first, int64_t samples) {
            TileArguments<T> t{};
            t.c = y + place(at, first), t.ldc = result(), t.init = bias;
            each_strip(at, [&](const Strip& strip) {
                t.a = {x + first * image() + strip.image, image(), 1};
                t.depth = strip.length, t.pieces = strip.pieces, t.a_skip = strip.image_step - strip.length;
                results(t, strip, panels, samples);
                t.more = true;
            });
            if (!t.more) results(t, {}, panels, samples);
        });
    }

    void results(TileArguments<T> t, const Strip& strip, const T* panels, int64_t samples) const {
        const int64_t gap = strip.filter_step - strip.length;
        if (panels == nullptr) {
            t.b = weight + strip.filter, t.ldb = args.depth(), t.b_skip = gap;
            return dot_product(t, samples, outputs);
        }
        for (int64_t o = 0; o < outputs; o += kWindowPanel) {
            const int64_t count = outputs - o < kWindowPanel ? outputs - o : kWindowPanel;
            TileArguments<T> panel = t;
            panel.ldb = padded(count), panel.b_skip = gap * panel.ldb;
            panel.b = panels + o * args.depth() + strip.filter * panel.ldb;
            panel.c += o;
            if (panel.init != nullptr) panel.init += o;
            product(panel, samples, count);
        }
    }

    /// Adds the filters' gradients to dweight; `turned`: to [depth, outputs].
    void of_filters(T* turned) const {
        TileArguments<T> t{};
        t.more = true;
        each_position([&](const Position& at, int64_t first, int64_t samples) {
            const T* const with = grad + place(at, first);
            t.depth = samples;
            each_strip(at, [&](const Strip& strip) {
                for (int64_t p = 0; p < strip.pieces; ++p) {
                    const T* const from = x + first * image() + strip.image + p * strip.image_step;
                    const int64_t tap = strip.filter + p * strip.filter_step;
                    if (turned != nullptr) {
                        t.a = {from, 1, image()}, t.b = with, t.ldb = result();
                        t.c = turned + tap * outputs, t.ldc = outputs;
                        product(t, strip.length, outputs);
                    } else {
                        t.a = {with, 1, result()}, t.b = from, t.ldb = image();
                        t.c = dweight + tap, t.ldc = args.depth();
                        product(t, outputs, strip.length);
                    }
                }
            });
        });
    }

    /// Adds the images' gradients to dx, window by window.
    void scatter() const {
        TileArguments<T> t{};
        t.depth = outputs, t.more = true, t.ldb = args.depth(), t.ldc = image();
        each_position([&](const Position& at, int64_t first, int64_t samples) {
            t.a = {grad + place(at, first), result(), 1};
            each_strip(at, [&](const Strip& strip) {
                for (int64_t p = 0; p < strip.pieces; ++p) {
                    t.b = weight + strip.filter + p * strip.filter_step;
                    t.c = dx + first * image() + strip.image + p * strip.image_step;
                    product(t, samples, strip.length);
                }
            });
        });
    }

    /// Writes the images' gradients to dx, pixel by pixel of the image: each is one sum.
    void gather() const {
        const Window &p = args.planes, &h = args.height, &w = args.width;
        const int64_t C = args.group_inputs();
        each_pixel({p.input, h.input, w.input}, [&](const Position& at, int64_t first, int64_t samples) {
            const Under planes = under(p, at.plane), rows = under(h, at.row), columns = under(w, at.column);
            TileArguments<T> t{};
            const int64_t pixel = (at.plane * h.input + at.row) * w.input + at.column;
            t.c = dx + first * image() + pixel * args.inputs, t.ldc = image();
            t.depth = outputs, t.pieces = columns.count, t.ldb = args.depth();
            t.a_skip = -columns.back * args.outputs - outputs, t.b_skip = columns.step * C - outputs * t.ldb;
            const int64_t taps = columns.count > 0 ? planes.count * rows.count : 0;
            for (int64_t k = 0; k < taps; ++k, t.more = true) {
                const int64_t z = k / rows.count, r = k % rows.count;
                const Position under{planes.result - z * planes.back, rows.result - r * rows.back, columns.result};
                const int64_t row = (planes.first + z * planes.step) * h.kernel + rows.first + r * rows.step;
                t.a = {grad + place(under, first), result(), 1};
                t.b = weight + (row * w.kernel + columns.first) * C;
                product(t, samples, C);
            }
            if (t.more) return;
            for (int64_t n = 0; n < samples; ++n) fill(t.c + n * image(), C, T(0));
        });
    }
};

}  // namespace dnnsuite::fused::DNNSUITE_ISA
