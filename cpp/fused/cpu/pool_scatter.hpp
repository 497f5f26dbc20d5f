// SPDX-License-Identifier: MIT
// The gradient of a maximum over images of few channels: each number of a window goes to the pixel that its tap names. A
// gather, which looks for a pixel in each window that it is in, fills no vector there. The sums have the same order.
#pragma once

#include <algorithm>

#include "fused/cpu/tasks.hpp"
#include "fused/math/pool.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

constexpr int64_t kFewChannels = 8;

/// Adds the gradients of one window row by row of its channels. `apart`: no pixel is in two windows.
template <bool apart, class T>
void scatter_image(const PoolArguments& args, const int64_t* places, const T* from, const uint8_t* taps, T* to) {
    const Window &h = args.height, &w = args.width;
    const int64_t C = args.channels;
    for (int64_t y = 0; y < h.output; ++y) {
        for (int64_t x = 0; x < w.output; ++x, from += C, taps += C) {
            const int64_t first = ((y * h.stride - h.padding) * w.input + x * w.stride - w.padding) * C;
            for (int64_t c = 0; c < C; ++c) {
                if (taps[c] == kNoTap) continue;
                T* const pixel = to + first + places[taps[c]] + c;
                *pixel = apart ? from[c] : *pixel + from[c];
            }
        }
    }
}

/// Writes the gradients of images `first` to `last` - 1, counted over all models.
template <class T>
void scatter_images(const PoolArguments& args, int64_t first, int64_t last) {
    const Window &h = args.height, &w = args.width;
    int64_t places[kNoTap + 1];  // of each tap: the numbers from the first pixel of a window to its own
    for (int64_t tap = 0; tap < h.kernel * w.kernel; ++tap)
        places[tap] = (tap / w.kernel * h.dilation * w.input + tap % w.kernel * w.dilation) * args.channels;
    const int64_t image = h.input * w.input * args.channels, windows = h.output * w.output * args.channels;
    const auto ends_before_next = [](const Window& d) { return (d.kernel - 1) * d.dilation < d.stride; };
    const bool apart = ends_before_next(h) && ends_before_next(w);
    for (int64_t i = first; i < last; ++i) {
        T* const to = mutable_at<T>(args.to, i * image);
        std::fill(to, to + image, T(0));
        const auto scatter = apart ? scatter_image<true, T> : scatter_image<false, T>;
        scatter(args, places, at<T>(args.from, i * windows), at<uint8_t>(args.taps, i * windows), to);
    }
}

/// The images of the tasks [begin, end), as first and one behind the last; the same twice if they cut one.
struct WholeImages {
    int64_t first = 0, last = 0;
    WholeImages(const PoolArguments& args, int64_t begin, int64_t end) {
        const Rows& rows = args.rows;
        const Task front = task_at(rows, begin), back = task_at(rows, end - 1);
        const int64_t from = front.model * rows.rows + front.first_row, to = back.model * rows.rows + back.last_row;
        if (from % args.height.input == 0 && to % args.height.input == 0)
            first = from / args.height.input, last = to / args.height.input;
    }
};

}  // namespace dnnsuite::fused::DNNSUITE_ISA
