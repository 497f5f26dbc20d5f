// SPDX-License-Identifier: MIT
#pragma once

#include "fused/arguments.hpp"
#include "fused/cpu/isa.hpp"

namespace dnnsuite::fused {

/// The softmax of each row, or its logarithm; backwards x is that result.
struct SoftmaxArguments {
    static constexpr int64_t kMostColumns = 32;
    DType dtype;
    Rows rows;
    bool log;
    const void *x, *grad;
    void* y;  // backwards: dx
};

DNNSUITE_KERNEL(softmax, const SoftmaxArguments& args, int64_t begin, int64_t end)
DNNSUITE_KERNEL(softmax_backward, const SoftmaxArguments& args, int64_t begin, int64_t end)

}  // namespace dnnsuite::fused
