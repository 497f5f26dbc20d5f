// SPDX-License-Identifier: MIT
#pragma once

#include "fused/arguments.hpp"
#include "fused/cpu/isa.hpp"

namespace dnnsuite::fused {

/// A dimension of a copy: numbers from one to the next, in x and in the result.
struct CopiedDimension {
    int64_t size, from, to;
};

/// A copy in another order: for each combination of the outer dimensions either a matrix is transposed, or runs are
/// copied from where a table has them.
struct RearrangeArguments {
    static constexpr int64_t kMostDimensions = 8;

    DType dtype;
    int64_t dims;
    CopiedDimension outer[kMostDimensions];
    CopiedDimension repeats;        // of the matrix, within a combination
    CopiedDimension rows, columns;  // of the matrix: columns are 1 apart in x, rows in the result
    const int64_t* table;           // null: the matrix
    int64_t runs, run;
    const void* from;
    void* to;
};

/// Combinations [begin, end) of the outer dimensions.
DNNSUITE_KERNEL(rearrange, const RearrangeArguments& args, int64_t begin, int64_t end)

}  // namespace dnnsuite::fused
