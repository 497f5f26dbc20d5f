// SPDX-License-Identifier: MIT
#pragma once

#include "fused/arguments.hpp"
#include "fused/cpu/isa.hpp"

namespace dnnsuite::fused {

/// Of pixel i of a line of the result: pixels sources[k] with weights[k], k in [starts[i], starts[i + 1]).
struct TapsView {
    const int64_t *starts, *sources;
    const double* weights;
    const int64_t* runs;  // pixels from i on that are copies of x, side by side; 1: this one alone, copy or not
    int64_t outputs;
};

/// Images [count, H, W, C], channels last, to images [count, rows.outputs, columns.outputs, C].
struct ResampleArguments {
    DType dtype;
    int64_t height, width, channels;
    TapsView rows, columns;
    const void* from;
    void* to;
    bool streams;  // the result is larger than the caches

    int64_t scratch() const {
        return width * channels + rows.starts[rows.outputs] + columns.starts[columns.outputs] + 48;
    }
};

/// Rows [begin, end) of all images of the result. `scratch`: numbers as many as scratch() says.
DNNSUITE_KERNEL(resample, const ResampleArguments& args, int64_t begin, int64_t end, void* scratch)

}  // namespace dnnsuite::fused
