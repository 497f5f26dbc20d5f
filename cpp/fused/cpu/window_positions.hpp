// SPDX-License-Identifier: MIT
// Convolution position by position of the result: a row of the product is a sample, and of the filter only the taps
// that see the image are multiplied. Nothing is cut; on small maps most taps of a filter lie on the padding.
#pragma once

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

/// Pieces of a window that lie equally far apart, in the image and in the filters: numbers.
struct Strip {
    int64_t image = 0, filter = 0, pieces = 0, length = 0, image_step = 0, filter_step = 0;
};

/// Samples of which positions are multiplied at a time: their images and results stay in the second cache.
inline int64_t positions_at_once(const WindowConvolutionArguments& args) {
    constexpr int64_t kNumbers = 131072, kFew = 24;
    const int64_t sample =
        args.height.input * args.width.input * args.inputs + args.pixels() / args.samples * args.outputs;
    const int64_t near = kNumbers / sample / kFew * kFew;
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
        const int64_t samples = args.last_sample - args.first_sample, step = positions_at_once(args);
        for (int64_t first = 0; first < samples; first += step) {
            const int64_t count = samples - first < step ? samples - first : step;
            for (int64_t oh = 0; oh < args.height.output; ++oh)
                for (int64_t ow = 0; ow < args.width.output; ++ow) use(oh, ow, first, count);
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

    /// Adds the images' gradients to dx.
    void of_images() const {
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
};

}  // namespace dnnsuite::fused::DNNSUITE_ISA
