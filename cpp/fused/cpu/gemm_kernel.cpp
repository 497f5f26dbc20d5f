// SPDX-License-Identifier: MIT
// Products of small matrices with bias and ReLU, and what their backward pass does before its own two products.
// Compiled once per instruction set.
#include "fused/cpu/gemm_kernel.hpp"

#include "fused/cpu/gemm_tile.hpp"
#include "fused/cpu/tasks.hpp"
#include "fused/cpu/transpose.hpp"
#include "fused/cpu/vector_math.hpp"

#include <type_traits>

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

template <class T>
void relu_block(T* c, int64_t ld, int64_t rows, int64_t columns) {
    for (int64_t r = 0; r < rows; ++r, c += ld) {
        for_each_vector(columns, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
            activate<Activation::kRelu>(Vec<T>::load(c + i, n)).store(c + i, n);
        });
    }
}

/// Rows of a task's columns of B, packed as rows of whole vectors.
template <class T>
void pack_rows(const GemmArguments& args, const T* b, int64_t rows, int64_t columns, T* to) {
    const int64_t ld = padded(columns);
    if (args.b_row == 1) return pack_transposed(b, args.b_column, columns, rows, T(1), to, ld);
    for (int64_t k = 0; k < rows; ++k) {
        for (int64_t j = 0; j < columns; ++j) to[k * ld + j] = b[k * args.b_row + j * args.b_column];
    }
}

/// t.depth rows of a task's columns of B, of each of t.pieces parts of the sum: where they lie, or packed.
template <class T>
void pack_b(const GemmArguments& args, const T* b, int64_t columns, T* scratch, TileArguments<T>& t) {
    t.a_skip = args.a_part - t.depth * t.a.column;
    if (args.b_column == 1) {
        t.b = b;
        t.ldb = args.b_row;
        t.b_skip = args.b_part - t.depth * t.ldb;
        return;
    }
    t.b = scratch;
    t.ldb = padded(columns);
    for (int64_t part = 0; part < t.pieces; ++part)
        pack_rows(args, b + part * args.b_part, t.depth, columns, scratch + part * t.depth * t.ldb);
}

/// The bias of each row in all of a task's columns of C, where the sums go on from it.
template <class T>
void begin_rows(const GemmArguments& args, int64_t model, T* c, int64_t columns) {
    const T* bias = at<T>(args.bias, model * args.bias_model);
    for (int64_t r = 0; r < args.rows; ++r) fill(c + r * args.columns, columns, bias[r]);
}

/// The product, over pieces of the depth whose part of B stays in cache. C keeps the sums in between: their bits are
/// those of one sum.
template <class T>
void by_tiles(const GemmArguments& args, TileArguments<T> t, const T* b, int64_t columns, T* scratch) {
    const T* a = t.a.data;
    const int64_t at_once = gemm_parts_at_once(args);
    const bool begun = t.more;
    for (int64_t part = 0; part < args.parts; part += at_once) {
        t.pieces = args.parts - part < at_once ? args.parts - part : at_once;
        int64_t k = 0;
        do {
            t.depth = args.depth - k < kGemmDepth ? args.depth - k : kGemmDepth;
            t.a.data = a + part * args.a_part + k * t.a.column;
            t.more = begun || part + k > 0;
            pack_b(args, b + part * args.b_part + k * args.b_row, columns, scratch, t);
            product(t, args.rows, columns);
            k += t.depth;
        } while (k < args.depth);
    }
}

/// Rows [first, last) of a column times a row, plus bias.
template <bool relu, bool streams, class T>
void outer_rows(const GemmArguments& args, int64_t model, int64_t first, int64_t last) {
    const T *a = at<T>(args.a, model * args.a_model), *b = at<T>(args.b, model * args.b_model);
    const T* init = at<T>(args.bias, model * args.bias_model);
    T* to = mutable_at<T>(args.c, (model * args.rows + first) * args.columns);
    for (int64_t r = first; r < last; ++r, to += args.columns) {
        const Vec<T> left(a[r * args.a_row]);
        for_each_vector(args.columns, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
            Vec<T> sum = init == nullptr ? Vec<T>(T(0)) : Vec<T>::load(init + i, n);
            sum = sum + left * Vec<T>::load(b + i, n);
            if constexpr (relu) sum = activate<Activation::kRelu>(sum);
            streams ? sum.stream(to + i) : sum.store(to + i, n);
        });
    }
}

template <class T>
void run_outer(const GemmArguments& args, bool larger, int64_t begin, int64_t end) {
    const int64_t per_model = gemm_tasks_per_model(args), step = gemm_outer_rows(args);
    const bool streams = larger && args.columns % kLanes == 0 && reinterpret_cast<uintptr_t>(args.c) % 64 == 0;
    for (int64_t task = begin; task < end; ++task) {
        const int64_t first = task % per_model * step, last = first + step < args.rows ? first + step : args.rows;
        if (args.relu)
            outer_rows<true, false, T>(args, task / per_model, first, last);
        else if (streams)
            outer_rows<false, true, T>(args, task / per_model, first, last);
        else
            outer_rows<false, false, T>(args, task / per_model, first, last);
    }
    if (streams) finish_streams();
}

/// `count` of A's numbers times lines of B, added to the columns of C in order.
template <int count, class T>
DNNSUITE_HD void add_lines(const GemmArguments& args, const T* a, const T* b, T* c, int64_t columns) {
    Vec<T> left[count];
    _Pragma("GCC unroll 4") for (int k = 0; k < count; ++k) left[k] = Vec<T>(a[k * args.a_column]);
    for_each_vector(columns, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        Vec<T> sum = Vec<T>::load(c + i, n);
        _Pragma("GCC unroll 4") for (int k = 0; k < count; ++k) sum =
            sum + left[k] * Vec<T>::load(b + k * args.b_row + i, n);
        sum.store(c + i, n);
    });
}

/// A task's columns of one row by a matrix of long rows.
template <class T>
void by_lines(const GemmArguments& args, int64_t model, int64_t first) {
    const int64_t left = args.columns - first, columns = left < kGemmLine ? left : kGemmLine;
    const T *a = at<T>(args.a, model * args.a_model), *b = at<T>(args.b, model * args.b_model + first);
    const T* init = at<T>(args.bias, model * args.bias_model + first);
    T* c = mutable_at<T>(args.c, model * args.columns + first);
    for (int64_t i = 0; i < columns; ++i) c[i] = init == nullptr ? T(0) : init[i];
    int64_t k = 0;
    for (; k + 4 <= args.depth; k += 4) add_lines<4>(args, a + k * args.a_column, b + k * args.b_row, c, columns);
    for (; k < args.depth; ++k) add_lines<1>(args, a + k * args.a_column, b + k * args.b_row, c, columns);
    if (args.relu) relu_block(c, args.columns, 1, columns);
}

template <class T>
void run(const GemmArguments& args, bool streams, int64_t begin, int64_t end, void* scratch) {
    if (gemm_is_outer(args)) return run_outer<T>(args, streams, begin, end);
    const int64_t per_model = gemm_tasks_per_model(args);
    if (gemm_by_lines(args)) {
        for (int64_t task = begin; task < end; ++task)
            by_lines<T>(args, task / per_model, task % per_model * kGemmLine);
        return;
    }
    for (int64_t task = begin; task < end; ++task) {
        const int64_t model = task / per_model, first = task % per_model * kGemmColumns;
        const int64_t left = args.columns - first, columns = left < kGemmColumns ? left : kGemmColumns;
        const int64_t offset = model * args.rows * args.columns + first;
        const T* b = at<T>(args.b, model * args.b_model + first * args.b_column);
        TileArguments<T> t{};
        t.a = Strided<T>{at<T>(args.a, model * args.a_model), args.a_row, args.a_column};
        if (!args.bias_of_rows) t.init = at<T>(args.bias, model * args.bias_model + first);
        t.c = mutable_at<T>(args.c, offset);
        t.ldc = args.columns;
        if (args.bias_of_rows) {
            begin_rows(args, model, t.c, columns);
            t.more = true;
        }
        if (gemm_by_dots(args)) {
            t.depth = args.depth;
            t.b = b;
            t.ldb = args.b_column;
            dot_product(t, args.rows, columns);
        } else {
            by_tiles(args, t, b, columns, static_cast<T*>(scratch));
        }
        if (args.relu) relu_block(t.c, args.columns, args.rows, columns);
    }
}

template <class T>
void run_block(const GemmBlock& block) {
    TileArguments<T> t{};
    t.a = Strided<T>{at<T>(block.a, 0), block.a_row, block.a_column};
    t.b = at<T>(block.b, 0);
    t.ldb = block.ldb;
    t.depth = block.depth;
    t.c = mutable_at<T>(block.c, 0);
    t.ldc = block.ldc;
    t.more = block.more;
    block.by_dots ? dot_product(t, block.rows, block.columns) : product(t, block.rows, block.columns);
}

/// `vectors` of columns of some rows, the last of `n` columns: to = grad where result > 0, and sums of that over the rows
/// in order; `more`: behind those that were summed before.
template <int vectors, bool relu, class T>
DNNSUITE_HD void gradient_columns(const T* grad, const T* result, T* to, T* sums, int64_t ld, int64_t rows, int64_t n,
                                  bool more) {
    Vec<T> total[vectors];
    const auto count = [n](int v) { return v < vectors - 1 ? int64_t{kLanes} : n; };
    _Pragma("GCC unroll 4") for (int v = 0; v < vectors; ++v) total[v] =
        more && sums != nullptr ? Vec<T>::load(sums + v * kLanes, count(v)) : Vec<T>(T(0));
    for (int64_t r = 0; r < rows; ++r) {
        _Pragma("GCC unroll 4") for (int v = 0; v < vectors; ++v) {
            const int64_t at = r * ld + v * kLanes;
            Vec<T> g = Vec<T>::load(grad + at, count(v));
            if constexpr (relu) {
                g = g * activation_derivative<Activation::kRelu>(Vec<T>::load(result + at, count(v)));
                g.store(to + at, count(v));
            }
            total[v] = total[v] + g;
        }
    }
    if (sums == nullptr) return;
    _Pragma("GCC unroll 4") for (int v = 0; v < vectors; ++v) total[v].store(sums + v * kLanes, count(v));
}

/// Some rows at a time: the next vector of columns finds them in the caches.
template <bool relu, class T>
void run_gradient(const GemmGradientArguments& args, int64_t begin, int64_t end) {
    constexpr int64_t kRows = 64;
    const int64_t per_model = (args.columns + kGemmColumns - 1) / kGemmColumns;
    for (int64_t task = begin; task < end; ++task) {
        const int64_t model = task / per_model, first = task % per_model * kGemmColumns;
        const int64_t left = args.columns - first, columns = left < kGemmColumns ? left : kGemmColumns;
        T* sums = mutable_at<T>(args.sums, model * args.columns + first);
        for (int64_t row = 0; row == 0 || row < args.rows; row += kRows) {
            const int64_t offset = (model * args.rows + row) * args.columns + first;
            const int64_t rows = args.rows - row < kRows ? args.rows - row : kRows;
            const T *grad = at<T>(args.grad, offset), *result = at<T>(args.result, offset);
            T* to = mutable_at<T>(args.to, offset);
            const auto take = [&](auto vectors, int64_t i, int64_t n) __attribute__((always_inline)) {
                gradient_columns<decltype(vectors)::value, relu>(
                    grad + i, relu ? result + i : nullptr, relu ? to + i : nullptr,
                    sums == nullptr ? nullptr : sums + i, args.columns, rows, n, row > 0);
            };
            int64_t i = 0;
            for (; i + 2 * kLanes <= columns; i += 2 * kLanes) take(std::integral_constant<int, 2>(), i, kLanes);
            for_each_vector(columns - i, [&](int64_t j, int64_t n) __attribute__((always_inline)) {
                take(std::integral_constant<int, 1>(), i + j, n);
            });
        }
    }
}

template <class T>
void run_gradient(const GemmGradientArguments& args, int64_t begin, int64_t end) {
    if (args.result != nullptr) return run_gradient<true, T>(args, begin, end);
    run_gradient<false, T>(args, begin, end);
}

}  // namespace

void gemm(const GemmArguments& args, bool streams, int64_t begin, int64_t end, void* scratch) {
    if (args.dtype == DType::kFloat64) return run<double>(args, streams, begin, end, scratch);
    run<float>(args, streams, begin, end, scratch);
}

void gemm_block(const GemmBlock& block) {
    block.dtype == DType::kFloat64 ? run_block<double>(block) : run_block<float>(block);
}

void gemm_gradient(const GemmGradientArguments& args, int64_t begin, int64_t end) {
    if (args.dtype == DType::kFloat64) return run_gradient<double>(args, begin, end);
    run_gradient<float>(args, begin, end);
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
