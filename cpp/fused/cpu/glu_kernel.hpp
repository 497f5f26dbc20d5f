// SPDX-License-Identifier: MIT
#pragma once

#include "fused/arguments.hpp"
#include "fused/cpu/isa.hpp"

namespace dnnsuite::fused {

/// y = a / (1 + exp(-b)), where a row of x is `run` numbers a and, behind them, `run` numbers b.
struct GluArguments {
    DType dtype;
    Rows rows;  // of x: rows of 2 * run numbers
    int64_t run;
    bool streams;  // the result is larger than the caches
    const void *x, *grad;
    void *y, *dx;
};

DNNSUITE_KERNEL(glu, const GluArguments& args, int64_t begin, int64_t end)
DNNSUITE_KERNEL(glu_backward, const GluArguments& args, int64_t begin, int64_t end)

}  // namespace dnnsuite::fused
