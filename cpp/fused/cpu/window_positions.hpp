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

    int64_t image() const { return args.height.input * args.width.input * args.inputs; }
    int64_t result() const { return args.height.output * args.width.output * args.outputs; }

    /// use(strip) for every strip that position (oh, ow) of the result sees.
    template <class Use>
    void each_strip(int64_t oh, int64_t ow, const Use& use) const {
        const Window &h = args.height, &w = args.width;
        const Seen rows = seen_from(h, oh), columns = seen_from(w, ow);
        if (columns.count == 0) return;
        const int64_t C = args.group_inputs(), line = w.input * args.inputs;
        const bool whole = args.groups == 1 && w.dilation == 1;
        Strip strip{(rows.pixel * w.input + columns.pixel) * args.inputs, (rows.first * w.kernel + columns.first) * C};
        if (whole) {
            strip.pieces = rows.count, strip.length = columns.count * C;
            strip.image_step = h.dilation * line, strip.filter_step = w.kernel * C;
            if (rows.count > 0) use(strip);
            return;
        }
        strip.pieces = columns.count, strip.length = C;
        strip.image_step = w.dilation * args.inputs, strip.filter_step = C;
        for (int64_t r = 0; r < rows.count; ++r) {
            use(strip);
            strip.image += h.dilation * line, strip.filter += w.kernel * C;
        }
    }

    /// use(oh, ow, samples [first, first + count)) for a few samples at a time, which stay in the second cache.
    template <class Use>
    void each_position(const Use& use) const {
        each_pixel(args.height.output, args.width.output, use);
    }
    template <class Use>
    void each_pixel(int64_t height, int64_t width, const Use& use) const {
        const int64_t samples = args.last_sample - args.first_sample, step = positions_at_once(args);
        for (int64_t first = 0; first < samples; first += step) {
            const int64_t count = samples - first < step ? samples - first : step;
            for (int64_t row = 0; row < height; ++row)
                for (int64_t column = 0; column < width; ++column) use(row, column, first, count);
        }
    }

    /// Where a position's outputs lie, of a sample.
    int64_t place(int64_t oh, int64_t ow, int64_t sample) const {
        return sample * result() + (oh * args.width.output + ow) * args.outputs;
    }

    /// `panels`: packed filters, or null, and sums run along the windows.
    void forward(const T* panels, const T* bias) const {
        each_position([&](int64_t oh, int64_t ow, int64_t first, int64_t samples) {
            TileArguments<T> t{};
            t.c = y + place(oh, ow, first), t.ldc = result(), t.init = bias;
            each_strip(oh, ow, [&](const Strip& strip) {
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
        each_position([&](int64_t oh, int64_t ow, int64_t first, int64_t samples) {
            const T* const with = grad + place(oh, ow, first);
            t.depth = samples;
            each_strip(oh, ow, [&](const Strip& strip) {
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
        each_position([&](int64_t oh, int64_t ow, int64_t first, int64_t samples) {
            t.a = {grad + place(oh, ow, first), result(), 1};
            each_strip(oh, ow, [&](const Strip& strip) {
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
        const Window &h = args.height, &w = args.width;
        const int64_t C = args.group_inputs();
        each_pixel(h.input, w.input, [&](int64_t ih, int64_t iw, int64_t first, int64_t samples) {
            const Under rows = under(h, ih), columns = under(w, iw);
            TileArguments<T> t{};
            t.c = dx + first * image() + (ih * w.input + iw) * args.inputs, t.ldc = image();
            t.depth = outputs, t.pieces = columns.count, t.ldb = args.depth();
            t.a_skip = -columns.back * args.outputs - outputs, t.b_skip = columns.step * C - outputs * t.ldb;
            for (int64_t r = 0; r < rows.count && columns.count > 0; ++r, t.more = true) {
                t.a = {grad + place(rows.result - r * rows.back, columns.result, first), result(), 1};
                t.b = weight + ((rows.first + r * rows.step) * w.kernel + columns.first) * C;
                product(t, samples, C);
            }
            if (t.more) return;
            for (int64_t n = 0; n < samples; ++n) fill(t.c + n * image(), C, T(0));
        });
    }
};

}  // namespace dnnsuite::fused::DNNSUITE_ISA
