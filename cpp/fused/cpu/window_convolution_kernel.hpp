// SPDX-License-Identifier: MIT
#pragma once

#include "fused/arguments.hpp"
#include "fused/cpu/isa.hpp"

namespace dnnsuite::fused {

/// Convolution by products of windows, channels last: x [B, N, D, H, W, I], weight [B, O, KD, KH, KW, I / groups], bias
/// [B, O], y and grad [B, N, OD, OH, OW, O]; dx, dweight and dbias as x, weight and bias, null where nobody asks for
/// them. An image is a volume of a single plane.
struct WindowConvolutionArguments {
    DType dtype;
    int64_t models, samples, inputs, outputs, groups;
    Window planes, height, width;
    int64_t x_model;  // numbers from model to model; 0: all models share x
    const void *x, *weight, *bias, *grad;
    void *y, *dx, *dweight, *dbias;
    int64_t first_sample, last_sample, first_output, last_output;  // of each model, and of each group: what is computed

    /// True if windows are cut once for all models; their gradients would take the place.
    bool shares_x() const { return x_model == 0 && models > 1 && dx == nullptr; }
    int64_t group_inputs() const { return inputs / groups; }
    int64_t group_outputs() const { return outputs / groups; }
    /// Numbers of one window of one group.
    int64_t depth() const { return tap_rows() * width.kernel * group_inputs(); }
    /// Rows of taps of a filter.
    int64_t tap_rows() const { return planes.kernel * height.kernel; }
    /// Lines of a sample's result.
    int64_t lines() const { return planes.output * height.output; }
    /// Pixels of a sample, and of its result.
    int64_t input_pixels() const { return planes.input * height.input * width.input; }
    int64_t output_pixels() const { return lines() * width.output; }
    /// Pixels of one model's result.
    int64_t pixels() const { return samples * output_pixels(); }
    /// Numbers of one image and its result.
    int64_t sample_numbers() const { return input_pixels() * inputs + output_pixels() * outputs; }
    static constexpr int64_t kNearNumbers = 131072;  // half of a second cache of a megabyte
    int64_t some_outputs() const { return last_output - first_output; }
    /// True if a window is a pixel as it lies in memory.
    bool is_pixelwise() const {
        const auto plain = [](const Window& w) { return w.kernel == 1 && w.stride == 1 && w.padding == 0; };
        return plain(planes) && plain(height) && plain(width);
    }
    /// Lines whose windows are cut, and used for all products, at a time: so few that they stay in the second cache, and
    /// so many that filters larger than it are not read for a few pixels.
    int64_t lines_at_once() const {
        constexpr int64_t kNumbers = 32768, kPixels = 96;
        const int64_t near = kNumbers / depth(), pixels = near > kPixels ? near : kPixels;
        const int64_t some = width.output < pixels ? pixels / width.output : 1;
        const int64_t all = (last_sample - first_sample) * lines();
        return some < all ? some : all;
    }
};

constexpr int64_t kWindowPanel = 32;  // outputs whose filters are packed side by side

/// Numbers that filters of one model and one group take when they are packed.
inline int64_t window_panels(const WindowConvolutionArguments& args) {
    return args.depth() * ((args.group_outputs() + kWindowPanel - 1) / kWindowPanel) * kWindowPanel;
}

/// Numbers of scratch, for windows and for packed filters, or filters' gradients to be turned.
inline int64_t window_scratch(const WindowConvolutionArguments& args) {
    const int64_t windows = args.lines_at_once() * args.width.output * args.depth();
    return windows + window_panels(args) * (args.x_model == 0 ? args.models : 1);
}

/// Models [begin, end). `scratch` holds window_scratch(args) numbers of 8 bytes.
DNNSUITE_KERNEL(window_convolution, const WindowConvolutionArguments& args, int64_t begin, int64_t end, void* scratch)
DNNSUITE_KERNEL(window_convolution_backward, const WindowConvolutionArguments& args, int64_t begin, int64_t end,
                void* scratch)

}  // namespace dnnsuite::fused
