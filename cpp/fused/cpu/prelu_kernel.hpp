// SPDX-License-Identifier: MIT
#pragma once

#include "fused/arguments.hpp"
#include "fused/cpu/isa.hpp"

namespace dnnsuite::fused {

/// y = x above zero, else slope * x, where each channel of a model has its slope. A row has one number of each channel
/// if `turned`, else `rows.columns` numbers of channel (row % channels).
struct PreluArguments {
    DType dtype;
    Rows rows;
    int64_t channels;
    bool turned;
    const void *x, *slopes, *grad;  // slopes [B, channels]
    void *y, *dx, *sums;            // sums: of each task [channels]
};

DNNSUITE_KERNEL(prelu, const PreluArguments& args, int64_t begin, int64_t end)
DNNSUITE_KERNEL(prelu_backward, const PreluArguments& args, int64_t begin, int64_t end)

}  // namespace dnnsuite::fused
