// SPDX-License-Identifier: MIT
#pragma once

#include "fused/arguments.hpp"
#include "fused/cpu/isa.hpp"

namespace dnnsuite::fused {

constexpr int64_t kGemmColumns = 64;  // of a task
constexpr int64_t kGemmDepth = 256;   // of the part of B that is used at a time

/// One sum for each number, begun with the bias of its column or none: kernels for special shapes know no others.
inline bool gemm_is_plain(const GemmArguments& args) { return args.parts == 1 && !args.bias_of_rows; }

/// True for few rows by a matrix with contiguous columns, which is not packed. Depends on one model's shape only.
inline bool gemm_by_dots(const GemmArguments& args) {
    if (!gemm_is_plain(args) || args.b_row != 1 || args.a_column != 1 || args.depth < 32) return false;
    return args.columns == 1 || (args.b_column != 1 && args.rows <= 8);
}

/// A column times a row: nothing is summed, so rows are written whole, one after the other.
inline bool gemm_is_outer(const GemmArguments& args) {
    return gemm_is_plain(args) && args.depth == 1 && args.b_column == 1 && args.columns >= 16;
}
inline int64_t gemm_outer_rows(const GemmArguments& args) {
    const int64_t elements = 16384;  // of a task
    return args.columns < elements ? elements / args.columns : 1;
}

/// One row by a matrix of long rows, which are read whole, in the order of memory.
inline bool gemm_by_lines(const GemmArguments& args) {
    return gemm_is_plain(args) && args.rows == 1 && args.b_column == 1 && args.columns > kGemmColumns;
}
constexpr int64_t kGemmLine = 2048;  // columns of such a task: their sums stay in L1

/// Parts of the sum whose rows of B fit into the scratch together, or all where B is not packed.
inline int64_t gemm_parts_at_once(const GemmArguments& args) {
    if (args.b_column == 1 || args.depth == 0) return args.parts;
    return args.depth < kGemmDepth ? kGemmDepth / args.depth : 1;
}

/// Numbers of scratch that a task needs to pack its part of B, in elements.
inline int64_t gemm_scratch(const GemmArguments& args) {
    return args.b_column == 1 || gemm_by_dots(args) ? 0 : kGemmDepth * kGemmColumns;
}
inline int64_t gemm_tasks_per_model(const GemmArguments& args) {
    if (gemm_is_outer(args)) return (args.rows + gemm_outer_rows(args) - 1) / gemm_outer_rows(args);
    const int64_t columns = gemm_by_lines(args) ? kGemmLine : kGemmColumns;
    return (args.columns + columns - 1) / columns;
}

/// C[rows, columns] = A B, or added to what C holds, in one task; sums are in order, or `by_dots` of b[j * ldb + k].
struct GemmBlock {
    DType dtype;
    int64_t rows, columns, depth;
    const void* a;
    int64_t a_row, a_column;
    const void* b;
    int64_t ldb;
    void* c;
    int64_t ldc;
    bool more, by_dots;
};
DNNSUITE_KERNEL(gemm_block, const GemmBlock& block)

/// Tasks [begin, end) of models * gemm_tasks_per_model. `streams`: c is larger than the caches.
DNNSUITE_KERNEL(gemm, const GemmArguments& args, bool streams, int64_t begin, int64_t end, void* scratch)
/// Through the ReLU, and the sums for the bias: tasks [begin, end) of models * tasks of 64 columns.
DNNSUITE_KERNEL(gemm_gradient, const GemmGradientArguments& args, int64_t begin, int64_t end)

}  // namespace dnnsuite::fused
