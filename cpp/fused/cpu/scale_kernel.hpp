// SPDX-License-Identifier: MIT
#pragma once

#include "fused/arguments.hpp"
#include "fused/cpu/isa.hpp"

namespace dnnsuite::fused {

/// y = x * factors, where each number of a row has its factor, or each row if `by_rows`. `rows`: of groups, in the place
/// of models, which have factors of their own.
struct ScaleArguments {
    DType dtype;
    Rows rows;
    bool by_rows, streams;           // streams: results are larger than the caches
    const void *x, *factors, *grad;  // factors [groups, columns], or [groups, rows]
    void *y, *dx, *sums;             // sums: of grad * x, [tasks, columns] or [groups, rows]
};

DNNSUITE_KERNEL(scale, const ScaleArguments& args, int64_t begin, int64_t end)
DNNSUITE_KERNEL(scale_backward, const ScaleArguments& args, int64_t begin, int64_t end)

}  // namespace dnnsuite::fused
