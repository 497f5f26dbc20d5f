// SPDX-License-Identifier: MIT
// Bias, activation, dropout and residual in one pass, forward and backward. Compiled once per instruction set.
#include "fused/cpu/pointwise_kernel.hpp"

#include "fused/cpu/dropout_mask.hpp"
#include "fused/cpu/tasks.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

template <Activation kind, bool has_residual, class T>
void forward_row(const T* x, const T* bias, const T* factors, const T* residual, T* y, int64_t columns) {
    for_each_vector(columns, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        Vec<T> t = activate<kind>(Vec<T>::load(x + i, n) + Vec<T>::load(bias + i, n)) * Vec<T>::load(factors + i, n);
        if constexpr (has_residual) t = t + Vec<T>::load(residual + i, n);
        t.store(y + i, n);
    });
}

template <Activation kind, class T>
void backward_row(const T* grad, const T* x, const T* bias, const T* factors, T* dx, T* sums, int64_t columns) {
    for_each_vector(columns, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        Vec<T> t = Vec<T>::load(grad + i, n) * Vec<T>::load(factors + i, n);
        if constexpr (kind != Activation::kNone)
            t = t * activation_derivative<kind>(Vec<T>::load(x + i, n) + Vec<T>::load(bias + i, n));
        t.store(dx + i, n);
        if (sums != nullptr) (Vec<T>::load(sums + i, n) + t).store(sums + i, n);
    });
}

/// Calls `row(model, first element, columns, bias row, factors)` for every row of the tasks, and `start(task)`.
template <class T, class Start, class Row>
void for_each_row(const PointwiseArguments& args, int64_t begin, int64_t end, void* scratch, Start start, Row row) {
    const Rows& r = args.rows;
    T* zeros = static_cast<T*>(scratch);
    T* room = zeros + r.columns;
    if (args.bias == nullptr) fill(zeros, r.columns, T(0));
    if (args.dropout.p == nullptr) fill(room, r.columns, T(1));
    for (int64_t t = begin; t < end; ++t) {
        const Task task = task_at(r, t);
        const T* bias = args.bias == nullptr ? zeros : at<T>(args.bias, task.model * r.columns);
        DropoutRule rule{};
        if (args.dropout.p != nullptr) rule = dropout_rule(args.dropout, task.model);
        start(t);
        for (int64_t i = task.first_row; i < task.last_row; ++i) {
            const int64_t first = i * r.columns, left = r.elements - first;
            const int64_t columns = left < r.columns ? left : r.columns;
            const T* factors = args.dropout.p == nullptr ? room : dropout_factors(rule, first, columns, room);
            row(task.model * r.elements + first, columns, bias, factors);
        }
    }
}

template <Activation kind, class T>
void forward(const PointwiseArguments& args, int64_t begin, int64_t end, void* scratch) {
    const T *x = at<T>(args.x, 0), *residual = at<T>(args.residual, 0);
    T* y = static_cast<T*>(args.y);
    const auto row = [&](int64_t first, int64_t columns, const T* bias, const T* factors) {
        if (residual != nullptr)
            forward_row<kind, true>(x + first, bias, factors, residual + first, y + first, columns);
        else
            forward_row<kind, false>(x + first, bias, factors, residual, y + first, columns);
    };
    for_each_row<T>(args, begin, end, scratch, [](int64_t) {}, row);
}

template <Activation kind, class T>
void backward(const PointwiseArguments& args, int64_t begin, int64_t end, void* scratch) {
    const T *grad = at<T>(args.grad, 0), *x = at<T>(args.x, 0);
    T *dx = static_cast<T*>(args.y), *all_sums = static_cast<T*>(args.bias_sums), *sums = nullptr;
    const auto start = [&](int64_t task) {
        if (all_sums == nullptr) return;
        sums = all_sums + task * args.rows.columns;
        fill(sums, args.rows.columns, T(0));
    };
    const auto row = [&](int64_t first, int64_t columns, const T* bias, const T* factors) {
        const T* input = kind == Activation::kNone ? nullptr : x + first;
        backward_row<kind>(grad + first, input, bias, factors, dx + first, sums, columns);
    };
    for_each_row<T>(args, begin, end, scratch, start, row);
}

}  // namespace

#define DNNSUITE_BY_ACTIVATION(function, T)                                                       \
    switch (args.activation) {                                                                    \
        case Activation::kNone: return function<Activation::kNone, T>(args, begin, end, scratch); \
        case Activation::kRelu: return function<Activation::kRelu, T>(args, begin, end, scratch); \
        case Activation::kGelu: return function<Activation::kGelu, T>(args, begin, end, scratch); \
    }

void pointwise_forward(const PointwiseArguments& args, int64_t begin, int64_t end, void* scratch) {
    if (args.dtype == DType::kFloat64) {
        DNNSUITE_BY_ACTIVATION(forward, double)
    } else {
        DNNSUITE_BY_ACTIVATION(forward, float)
    }
}

void pointwise_backward(const PointwiseArguments& args, int64_t begin, int64_t end, void* scratch) {
    if (args.dtype == DType::kFloat64) {
        DNNSUITE_BY_ACTIVATION(backward, double)
    } else {
        DNNSUITE_BY_ACTIVATION(backward, float)
    }
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
