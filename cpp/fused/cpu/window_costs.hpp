// SPDX-License-Identifier: MIT
// Which of two ways a convolution is computed in: windows cut and multiplied, or products at single positions. Costs are
// multiplications of vectors for one pixel of the result and one group; a vector copied, or fetched from the second
// cache, counts as several. The bits depend on the way, so a cost is of one model's sizes only.
#pragma once

#include "fused/cpu/window_convolution_kernel.hpp"

namespace dnnsuite::fused {

struct WindowCosts {
    static constexpr double kCopied = 2,
                            kFetched = 4;  // a vector from one place to another; a line of the second cache

    explicit WindowCosts(const WindowConvolutionArguments& of)
        : args(of), depth(of.depth()), outputs(of.group_outputs()), whole(of.groups == 1 && of.width.dilation == 1),
          runs(whole ? of.tap_rows() : of.tap_rows() * of.width.kernel), length(depth / runs),
          seen(seen_part(of.planes) * seen_part(of.height) * seen_part(of.width)) {}

    /// Of all groups a sample's lines are read one after the other, of one group with gaps: then they must fit.
    bool positions_can() const {
        const bool near = args.groups == 1 || kFewSamples * args.sample_numbers() <= args.kNearNumbers;
        return !args.is_pixelwise() && args.samples >= kFewSamples && near;
    }
    bool forward_by_positions() const { return positions_can() && forward_at_positions() < forward_of_windows(); }
    bool filters_by_positions() const { return positions_can() && filters_at_positions() < filters_of_windows(); }
    bool images_by_positions() const { return positions_can() && images_at_positions() < images_of_windows(); }

    /// Filters' gradients as [depth, outputs], to be turned at the end, if that takes fewer vectors.
    bool turns_at_positions() const { return length * vectors(outputs) < outputs * vectors(length); }

    /// Images' gradients pixel by pixel, if that takes less than window by window.
    bool gathers() const { return gathered() < at_positions(outputs * vectors(length)); }

    const WindowConvolutionArguments& args;
    int64_t depth, outputs;
    bool whole;            // rows of taps are runs of the image's numbers
    int64_t runs, length;  // of a window
    double seen;           // the part of all taps that see the image

  private:
    static constexpr int64_t kFewSamples = 8;

    static int64_t vectors(int64_t numbers) { return (numbers + 15) / 16; }

    /// The part of a dimension's taps, over all positions, that see the image.
    static double seen_part(const Window& w) {
        int64_t count = 0;
        for (int64_t k = 0; k < w.kernel; ++k) {
            const int64_t at = k * w.dilation - w.padding, room = w.input - at;
            const int64_t first = at < 0 ? (-at + w.stride - 1) / w.stride : 0;
            const int64_t end = room > 0 ? (room - 1) / w.stride + 1 : 0, last = end < w.output ? end : w.output;
            count += first < last ? last - first : 0;
        }
        return static_cast<double>(count) / static_cast<double>(w.output * w.kernel);
    }

    double cut() const { return kCopied * static_cast<double>(runs * vectors(length)); }
    double forward_of_windows() const { return static_cast<double>(depth * vectors(outputs)) + cut(); }
    double forward_at_positions() const {
        const int64_t again = whole ? args.planes.kernel - 1 : args.tap_rows();  // the sums are stored and loaded
        return seen * static_cast<double>(depth * vectors(outputs)) +
               kCopied * static_cast<double>(again * vectors(outputs)) + far();
    }

    /// A row of the result is a sample's: those of one position lie far apart, and its neighbours come too late.
    double far() const {
        const int64_t numbers = args.pixels() * outputs;
        return numbers > args.kNearNumbers ? kFetched * static_cast<double>(vectors(outputs)) : 0.0;
    }

    double filters_of_windows() const {
        const int64_t plain = outputs * vectors(depth), turned = 2 * depth * vectors(outputs);
        return static_cast<double>(plain < turned ? plain : turned) + cut();
    }
    double filters_at_positions() const {
        const int64_t plain = outputs * vectors(length), turned = length * vectors(outputs);
        const int64_t run = plain < turned ? plain : turned;  // sums that are loaded and stored once a position
        return at_positions(run) + seen * static_cast<double>(2 * runs * run) / static_cast<double>(args.samples) +
               far();
    }

    double images_of_windows() const {
        return static_cast<double>(outputs * vectors(depth) + vectors(depth)) + kCopied * cut();
    }
    double images_at_positions() const { return gathers() ? gathered() : at_positions(outputs * vectors(length)); }
    double gathered() const {
        const int64_t taps = args.tap_rows() * args.width.kernel, pixel = vectors(args.group_inputs());
        return seen * (static_cast<double>(taps * outputs * pixel) +
                       kFetched * static_cast<double>(args.tap_rows() * (pixel + 1)));
    }

    double at_positions(int64_t of_run) const {
        return seen * static_cast<double>(runs) *
               (static_cast<double>(of_run) + kFetched * static_cast<double>(vectors(length) + 1));
    }
};

}  // namespace dnnsuite::fused
