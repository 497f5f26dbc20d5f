// SPDX-License-Identifier: MIT
// Numbers times factors that their rows, or columns, share, and the gradients of both, in one pass. Compiled once per
// instruction set.
#include "fused/cpu/scale_kernel.hpp"

#include "fused/cpu/reduction.hpp"
#include "fused/cpu/tasks.hpp"
#include "fused/cpu/vector.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

constexpr int64_t kPiece = 4096;  // numbers of a row that are added up before their sum goes to that of the row
constexpr int kMostVectors = 4;   // of a row, whose sums stay in registers

/// Writes to memory, past the caches if `streams`.
template <bool streams, class T>
DNNSUITE_HD void put(const Vec<T>& v, T* to, int64_t count) {
    streams ? v.stream(to) : v.store(to, count);
}

/// True if all rows of a result begin at whole lines, and it is larger than the caches.
bool streams_to(const ScaleArguments& args, const void* result) {
    return args.streams && args.rows.columns % kLanes == 0 && reinterpret_cast<uintptr_t>(result) % 64 == 0;
}

template <bool streams, class T>
void forward(const ScaleArguments& args, int64_t begin, int64_t end) {
    const int64_t C = args.rows.columns, R = args.rows.rows;
    for (int64_t t = begin; t < end; ++t) {
        const Task task = task_at(args.rows, t);
        for (int64_t r = task.first_row; r < task.last_row; ++r) {
            const int64_t row = task.model * R + r;
            const T* const x = at<T>(args.x, row * C);
            const T* const factors = at<T>(args.factors, args.by_rows ? row : task.model * C);
            T* const y = mutable_at<T>(args.y, row * C);
            const Vec<T> single(factors[0]);
            if (args.by_rows)
                for_each_vector(C, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
                    put<streams>(Vec<T>::load(x + i, n) * single, y + i, n);
                });
            else
                for_each_vector(C, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
                    put<streams>(Vec<T>::load(x + i, n) * Vec<T>::load(factors + i, n), y + i, n);
                });
        }
    }
    if (streams) finish_streams();
}

/// Of a piece of a row: dx, and the sum of grad * x.
template <class T>
T piece(const T* x, const T* grad, T factor, T* dx, int64_t count) {
    const Vec<T> single(factor);
    Vec<T> total(T(0));
    for_each_vector(count, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        const Vec<T> g = Vec<T>::load(grad + i, n);
        total = total + g * Vec<T>::load(x + i, n);
        (g * single).store(dx + i, n);
    });
    return sum(total);
}

template <class T>
void backward_by_rows(const ScaleArguments& args, int64_t begin, int64_t end) {
    const int64_t C = args.rows.columns, R = args.rows.rows;
    for (int64_t t = begin; t < end; ++t) {
        const Task task = task_at(args.rows, t);
        for (int64_t r = task.first_row; r < task.last_row; ++r) {
            const int64_t row = task.model * R + r;
            const T *const x = at<T>(args.x, row * C), *const grad = at<T>(args.grad, row * C);
            T* const dx = mutable_at<T>(args.dx, row * C);
            const T factor = *at<T>(args.factors, row);
            T total(0);
            for (int64_t i = 0; i < C; i += kPiece)
                total += piece(x + i, grad + i, factor, dx + i, C - i < kPiece ? C - i : kPiece);
            *mutable_at<T>(args.sums, row) = total;
        }
    }
}

/// Rows of `vectors` vectors, the last of which has `left` numbers.
template <int vectors, bool streams, class T>
void short_rows(const T* x, const T* grad, const T* factors, T* dx, T* sums, int64_t rows, int64_t columns) {
    const int64_t left = columns - (vectors - 1) * kLanes;
    const auto count = [&](int v) { return v + 1 < vectors ? int64_t{kLanes} : left; };
    Vec<T> total[vectors], factor[vectors];
    _Pragma("GCC unroll 4") for (int v = 0; v < vectors; ++v) {
        total[v] = Vec<T>(T(0));
        factor[v] = Vec<T>::load(factors + v * kLanes, count(v));
    }
    for (int64_t r = 0; r < rows; ++r, x += columns, grad += columns, dx += columns) {
        _Pragma("GCC unroll 4") for (int v = 0; v < vectors; ++v) {
            const int64_t i = v * kLanes;
            const Vec<T> g = Vec<T>::load(grad + i, count(v));
            total[v] = total[v] + g * Vec<T>::load(x + i, count(v));
            put<streams>(g * factor[v], dx + i, count(v));
        }
    }
    _Pragma("GCC unroll 4") for (int v = 0; v < vectors; ++v) total[v].store(sums + v * kLanes, count(v));
}

template <bool streams, class T>
void long_rows(const T* x, const T* grad, const T* factors, T* dx, T* sums, int64_t rows, int64_t columns) {
    fill(sums, columns, T(0));
    for (int64_t r = 0; r < rows; ++r, x += columns, grad += columns, dx += columns) {
        for_each_vector(columns, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
            const Vec<T> g = Vec<T>::load(grad + i, n);
            (Vec<T>::load(sums + i, n) + g * Vec<T>::load(x + i, n)).store(sums + i, n);
            put<streams>(g * Vec<T>::load(factors + i, n), dx + i, n);
        });
    }
}

template <bool streams, class T>
void backward_by_columns(const ScaleArguments& args, int64_t begin, int64_t end) {
    const int64_t C = args.rows.columns, R = args.rows.rows;
    const int64_t vectors = (C + kLanes - 1) / kLanes;
    constexpr decltype(&long_rows<streams, T>) kernels[kMostVectors] = {
        short_rows<1, streams, T>, short_rows<2, streams, T>, short_rows<3, streams, T>, short_rows<4, streams, T>};
    const auto kernel = vectors > kMostVectors ? long_rows<streams, T> : kernels[vectors - 1];
    for (int64_t t = begin; t < end; ++t) {
        const Task task = task_at(args.rows, t);
        const int64_t first = (task.model * R + task.first_row) * C;
        kernel(at<T>(args.x, first), at<T>(args.grad, first), at<T>(args.factors, task.model * C),
               mutable_at<T>(args.dx, first), mutable_at<T>(args.sums, t * C), task.last_row - task.first_row, C);
    }
    if (streams) finish_streams();
}

template <class T>
void backward(const ScaleArguments& args, int64_t begin, int64_t end) {
    if (args.by_rows) return backward_by_rows<T>(args, begin, end);
    const bool streams = streams_to(args, args.dx);
    streams ? backward_by_columns<true, T>(args, begin, end) : backward_by_columns<false, T>(args, begin, end);
}

}  // namespace

void scale(const ScaleArguments& args, int64_t begin, int64_t end) {
    const bool streams = streams_to(args, args.y);
    if (args.dtype == DType::kFloat64)
        return streams ? forward<true, double>(args, begin, end) : forward<false, double>(args, begin, end);
    streams ? forward<true, float>(args, begin, end) : forward<false, float>(args, begin, end);
}

void scale_backward(const ScaleArguments& args, int64_t begin, int64_t end) {
    if (args.dtype == DType::kFloat64) return backward<double>(args, begin, end);
    backward<float>(args, begin, end);
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
