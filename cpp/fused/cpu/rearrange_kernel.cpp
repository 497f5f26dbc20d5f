// SPDX-License-Identifier: MIT
// Copies in another order of dimensions. Compiled once per instruction set.
#include "fused/cpu/rearrange_kernel.hpp"

#include "fused/cpu/tasks.hpp"
#include "fused/cpu/transpose.hpp"
#include "fused/cpu/vector.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

/// Where a combination of the outer dimensions begins, in x and in the result.
struct Place {
    int64_t from, to;
};

DNNSUITE_HD Place place_of(const RearrangeArguments& args, int64_t task) {
    Place place{0, 0};
    for (int64_t d = args.dims - 1; d >= 0; --d) {
        const CopiedDimension& dim = args.outer[d];
        place.from += task % dim.size * dim.from;
        place.to += task % dim.size * dim.to;
        task /= dim.size;
    }
    return place;
}

template <class T>
void copy_runs(const RearrangeArguments& args, const T* from, T* to) {
    const int64_t* const table = args.table;
    if (args.run == 1) {
        for (int64_t k = 0; k < args.runs; ++k) to[k] = from[table[k]];
    } else if (args.run == 2) {
        for (int64_t k = 0; k < args.runs; ++k) {
            to[2 * k] = from[table[k]];
            to[2 * k + 1] = from[table[k] + 1];
        }
    } else {
        for (int64_t k = 0; k < args.runs; ++k) copy_run(from + table[k], to + k * args.run, args.run);
    }
}

/// A matrix of few rows or columns, in blocks of four and numbers that are left.
template <class T>
void copy_small_matrix(const T* from, int64_t stride, int64_t rows, int64_t columns, T* to, int64_t ld) {
    const int64_t whole_rows = rows / 4 * 4, whole_columns = columns / 4 * 4;
    for (int64_t c = 0; c < whole_columns; c += 4)
        for (int64_t r = 0; r < whole_rows; r += 4)
            transpose_block(from + r * stride + c, stride, T(1), to + c * ld + r, ld);
    for (int64_t c = whole_rows < rows ? 0 : whole_columns; c < columns; ++c)
        for (int64_t r = c < whole_columns ? whole_rows : 0; r < rows; ++r) to[c * ld + r] = from[r * stride + c];
}

/// Transposes a matrix. Of two rows, or columns, that leave no gap the compiler makes interleaved copies.
template <class T>
void copy_matrix(const RearrangeArguments& args, const T* from, T* to) {
    const int64_t rows = args.rows.size, columns = args.columns.size, stride = args.rows.from, ld = args.columns.to;
    if (rows == 2 && ld == 2) {
        const T *const first = from, *const second = from + stride;
        for (int64_t c = 0; c < columns; ++c) {
            to[2 * c] = first[c];
            to[2 * c + 1] = second[c];
        }
    } else if (columns == 2 && stride == 2) {
        T *const first = to, *const second = to + ld;
        for (int64_t r = 0; r < rows; ++r) {
            first[r] = from[2 * r];
            second[r] = from[2 * r + 1];
        }
    } else if (rows < kBlock || columns < kBlock) {
        copy_small_matrix(from, stride, rows, columns, to, ld);
    } else {
        transpose_matrix(from, stride, rows, columns, T(1), to, ld);
    }
}

template <class T>
void rearrange_all(const RearrangeArguments& args, int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
        const Place place = place_of(args, task);
        const T* const from = at<T>(args.from, place.from);
        T* const to = mutable_at<T>(args.to, place.to);
        if (args.table != nullptr)
            copy_runs(args, from, to);
        else
            for (int64_t i = 0; i < args.repeats.size; ++i)
                copy_matrix(args, from + i * args.repeats.from, to + i * args.repeats.to);
    }
}

}  // namespace

void rearrange(const RearrangeArguments& args, int64_t begin, int64_t end) {
    if (args.dtype == DType::kFloat64) return rearrange_all<double>(args, begin, end);
    rearrange_all<float>(args, begin, end);
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
