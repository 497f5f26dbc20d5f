// SPDX-License-Identifier: MIT
// Sizes and divisors of pooling, as torch has them.
#pragma once

#include "fused/math/portable.hpp"

namespace dnnsuite::fused {

/// The tap of a window whose result has no gradient.
constexpr int kNoTap = 255;

/// Windows along one dimension. With `ceil_mode` the last may reach past the end, if it begins in the image or before.
DNNSUITE_HD int64_t pooled_size(int64_t input, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
                                bool ceil_mode) {
    const int64_t room = input + 2 * padding - dilation * (kernel - 1) - 1;
    const int64_t more = ceil_mode ? stride - 1 : 0;
    if (room + more < 0) return 0;
    const int64_t windows = (room + more) / stride + 1;
    return ceil_mode && (windows - 1) * stride >= input + padding ? windows - 1 : windows;
}

/// Pixels of one dimension that a mean divides by: those of the window, without what lies past the padding; or, if
/// padding does not count, those in the image.
DNNSUITE_HD int64_t counted_pixels(int64_t window, int64_t input, int64_t kernel, int64_t stride, int64_t padding,
                                   bool count_padding) {
    int64_t first = window * stride - padding;
    int64_t last = first + kernel < input + padding ? first + kernel : input + padding;
    if (!count_padding) {
        first = first > 0 ? first : 0;
        last = last < input ? last : input;
    }
    return last > first ? last - first : 1;
}

}  // namespace dnnsuite::fused
