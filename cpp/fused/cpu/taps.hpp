// SPDX-License-Identifier: MIT
// Pixels under a window's taps, for kernels that go over images channels last.
#pragma once

#include "fused/arguments.hpp"
#include "fused/cpu/vector.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

/// A tap that meets a pixel: where that pixel is, and which tap.
struct Tap {
    int32_t from, tap;
};

/// The taps of every position of one dimension: count[p] of them from tap[p * width] on.
struct Taps {
    Tap* tap;
    int64_t* count;
    int64_t width;

    const Tap* of(int64_t position) const { return tap + position * width; }
};

/// `transposed`: positions of the input, taps of the outputs they went to.
inline Taps taps_of(const Window& w, bool transposed, int64_t*& room) {
    const int64_t positions = transposed ? w.input : w.output, others = transposed ? w.output : w.input;
    const Taps taps{reinterpret_cast<Tap*>(room), room + positions * w.kernel, w.kernel};
    room += positions * (w.kernel + 1);
    for (int64_t p = 0; p < positions; ++p) {
        int64_t count = 0;
        for (int64_t k = 0; k < w.kernel; ++k) {
            const int64_t at = transposed ? p + w.padding - k * w.dilation : p * w.stride - w.padding + k * w.dilation;
            const int64_t from = transposed ? at / w.stride : at;
            if (at < 0 || from >= others || (transposed && at % w.stride != 0)) continue;
            taps.tap[p * w.kernel + count++] = {static_cast<int32_t>(from), static_cast<int32_t>(k)};
        }
        taps.count[p] = count;
    }
    return taps;
}

/// Calls body(i) for 0 to N - 1; if N is 0, to count - 1. Backwards likewise.
template <int N, class Body>
DNNSUITE_HD void upwards(int64_t count, const Body& body) {
    if constexpr (N > 0) {
        _Pragma("GCC unroll 3") for (int64_t i = 0; i < N; ++i) body(i);
    } else {
        _Pragma("GCC unroll 1") for (int64_t i = 0; i < count; ++i) body(i);
    }
}
template <int N, class Body>
DNNSUITE_HD void downwards(int64_t count, const Body& body) {
    if constexpr (N > 0) {
        _Pragma("GCC unroll 3") for (int64_t i = N - 1; i >= 0; --i) body(i);
    } else {
        _Pragma("GCC unroll 1") for (int64_t i = count - 1; i >= 0; --i) body(i);
    }
}

/// Sixteen channels at a time, the last ones overlapping the ones before.
template <class Body>
DNNSUITE_HD void for_each_block(int64_t channels, const Body& body) {
    if (channels < kLanes) return body(int64_t{0}, channels);
    int64_t c = 0;
    for (; c + kLanes <= channels; c += kLanes) body(c, int64_t{kLanes});
    if (c < channels) body(channels - kLanes, int64_t{kLanes});  // written twice, the same both times
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
