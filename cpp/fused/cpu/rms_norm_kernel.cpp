// SPDX-License-Identifier: MIT
// RMS norm (Zhang, Sennrich 2019). A row is read from memory once and stays in L1; the backward pass computes its
// root mean square again. Compiled once per instruction set.
#include "fused/cpu/rms_norm_kernel.hpp"

#include "fused/cpu/reduction.hpp"
#include "fused/cpu/tasks.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

/// 1 / sqrt(mean of x² + eps).
template <class T>
T inverse_root(const T* x, int64_t columns, double eps) {
    Vec<T> squares(T(0));
    for_each_vector(columns, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        const Vec<T> v = Vec<T>::load(x + i, n);
        squares = squares + v * v;
    });
    return T(1) / square_root(sum(squares) / static_cast<T>(columns) + static_cast<T>(eps));
}

template <bool weighted, class T>
void forward_row(const T* x, const T* weight, T* y, int64_t columns, double eps) {
    const Vec<T> inverse(inverse_root(x, columns, eps));
    for_each_vector(columns, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        Vec<T> v = Vec<T>::load(x + i, n) * inverse;
        if constexpr (weighted) v = v * Vec<T>::load(weight + i, n);
        v.store(y + i, n);
    });
}

/// Adds the row to the sums of the weight's gradient and writes dx. `weight` may be null where dx is.
template <bool weighted, class T>
void backward_row(const T* x, const T* grad, const T* weight, T* sums, T* dx, int64_t columns, double eps) {
    const T root = inverse_root(x, columns, eps);
    const Vec<T> inverse(root);
    Vec<T> product(T(0));
    for_each_vector(columns, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        const Vec<T> v = Vec<T>::load(x + i, n);
        Vec<T> g = Vec<T>::load(grad + i, n);
        if constexpr (weighted) {
            (Vec<T>::load(sums + i, n) + g * (v * inverse)).store(sums + i, n);
            if (dx == nullptr) return;
            g = g * Vec<T>::load(weight + i, n);
        }
        product = product + g * v;
    });
    if (dx == nullptr) return;
    const Vec<T> curve(root * root * (sum(product) / static_cast<T>(columns)));
    for_each_vector(columns, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        Vec<T> g = Vec<T>::load(grad + i, n);
        if constexpr (weighted) g = g * Vec<T>::load(weight + i, n);
        ((g - Vec<T>::load(x + i, n) * curve) * inverse).store(dx + i, n);
    });
}

/// Calls row(first element, that of x, weight) for every row of the tasks, and start(task).
template <class T, class Start, class Row>
void for_each_row(const RmsNormArguments& args, int64_t begin, int64_t end, const Start& start, const Row& row) {
    for (int64_t t = begin; t < end; ++t) {
        const Task task = task_at(args.rows, t);
        const T* weight = at<T>(args.weight, task.model * args.rows.columns);
        start(t);
        for (int64_t i = task.first_row; i < task.last_row; ++i) {
            const int64_t first = (task.model * args.rows.rows + i) * args.rows.columns;
            row(first, args.shared_x ? i * args.rows.columns : first, weight);
        }
    }
}

template <class T>
void forward(const RmsNormArguments& args, int64_t begin, int64_t end) {
    const T* x = at<T>(args.x, 0);
    T* y = mutable_at<T>(args.y, 0);
    for_each_row<T>(
        args, begin, end, [](int64_t) {},
        [&](int64_t first, int64_t of_x, const T* weight) {
            if (weight != nullptr)
                forward_row<true>(x + of_x, weight, y + first, args.rows.columns, args.eps);
            else
                forward_row<false>(x + of_x, weight, y + first, args.rows.columns, args.eps);
        });
}

template <class T>
void backward(const RmsNormArguments& args, int64_t begin, int64_t end) {
    const int64_t columns = args.rows.columns;
    const T *x = at<T>(args.x, 0), *grad = at<T>(args.grad, 0);
    T* sums = nullptr;
    const auto start = [&](int64_t task) {
        sums = mutable_at<T>(args.weight_sums, task * columns);
        if (sums != nullptr) fill(sums, columns, T(0));
    };
    for_each_row<T>(args, begin, end, start, [&](int64_t first, int64_t of_x, const T* weight) {
        T* dx = mutable_at<T>(args.dx, first);
        if (sums != nullptr)
            backward_row<true>(x + of_x, grad + first, weight, sums, dx, columns, args.eps);
        else
            backward_row<false>(x + of_x, grad + first, weight, sums, dx, columns, args.eps);
    });
}

}  // namespace

void rms_norm_forward(const RmsNormArguments& args, int64_t begin, int64_t end) {
    if (args.dtype == DType::kFloat64) return forward<double>(args, begin, end);
    forward<float>(args, begin, end);
}

void rms_norm_backward(const RmsNormArguments& args, int64_t begin, int64_t end) {
    if (args.dtype == DType::kFloat64) return backward<double>(args, begin, end);
    backward<float>(args, begin, end);
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
