// SPDX-License-Identifier: MIT
// Layer norm (Ba, Kiros, Hinton 2016), plain or of residual + dropout(x + bias). A row is read from memory once
// and stays in L1; its statistics are recomputed in the backward pass, so nothing but the inputs is saved.
// Compiled once per instruction set.
#include "fused/cpu/layer_norm_kernel.hpp"

#include "fused/cpu/dropout_mask.hpp"
#include "fused/cpu/tasks.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

constexpr int64_t kAhead = 1024;  // numbers from one that is read to one that is fetched: nothing waits for memory

template <class T>
struct Statistics {
    Vec<T> mean, inverse_deviation;
};

/// The sum of body(i, n) over the vectors of a row. Four sums, so that none waits for the one before it.
template <class T, class Body>
DNNSUITE_HD T row_sum(int64_t columns, const Body& body) {
    Vec<T> total(T(0));
    int64_t i = 0;
    if (columns >= 4 * kLanes) {
        Vec<T> part[3] = {total, total, total};
        for (; i + 4 * kLanes <= columns; i += 4 * kLanes) {
            total = total + body(i, int64_t{kLanes});
            _Pragma("GCC unroll 3") for (int k = 0; k < 3; ++k) part[k] =
                part[k] + body(i + (k + 1) * kLanes, int64_t{kLanes});
        }
        total = (total + part[0]) + (part[1] + part[2]);
    }
    for_each_vector(columns - i,
                    [&](int64_t j, int64_t n) __attribute__((always_inline)) { total = total + body(i + j, n); });
    return sum(total);
}

template <class T>
Statistics<T> statistics(const T* s, int64_t columns, double eps) {
    const T count = static_cast<T>(columns);
    const T mean = row_sum<T>(columns, [&](int64_t i, int64_t n)
                                           __attribute__((always_inline)) { return Vec<T>::load(s + i, n); }) /
                   count;
    const T squares = row_sum<T>(columns, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        const Vec<T> d = keep_first(Vec<T>::load(s + i, n) - Vec<T>(mean), n);
        return d * d;
    });
    return {Vec<T>(mean), Vec<T>(T(1) / square_root(squares / count + static_cast<T>(eps)))};
}

/// residual + (x + bias) * factors, zero-padded to whole vectors.
template <class T>
void composite_row(const T* x, const T* bias, const T* factors, const T* residual, T* s, int64_t columns) {
    for_each_vector(columns, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        const Vec<T> t = Vec<T>::load(x + i, n) + Vec<T>::load(bias + i, n);
        (Vec<T>::load(residual + i, n) + t * Vec<T>::load(factors + i, n)).store(s + i);
    });
}

template <class T>
void normalise_row(const T* s, const T* weight, const T* bias, T* y, int64_t columns, double eps) {
    const Statistics<T> st = statistics(s, columns, eps);
    for_each_vector(columns, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        const Vec<T> normal = (Vec<T>::load(s + i, n) - st.mean) * st.inverse_deviation;
        (normal * Vec<T>::load(weight + i, n) + Vec<T>::load(bias + i, n)).store(y + i, n);
    });
}

/// Adds the row to the sums of the weight's and bias's gradients and writes ds, if that is not null.
template <class T>
void backward_row(const T* s, const T* grad, const T* weight, T* weight_sums, T* bias_sums, T* ds, int64_t columns,
                  double eps) {
    const Statistics<T> st = statistics(s, columns, eps);
    Vec<T> sum_g(T(0)), sum_gn(T(0));
    for_each_vector(columns, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        const Vec<T> normal = (Vec<T>::load(s + i, n) - st.mean) * st.inverse_deviation;
        fetch(grad + i, kAhead);
        const Vec<T> g = Vec<T>::load(grad + i, n), gw = g * Vec<T>::load(weight + i, n);
        (Vec<T>::load(weight_sums + i, n) + g * normal).store(weight_sums + i, n);
        (Vec<T>::load(bias_sums + i, n) + g).store(bias_sums + i, n);
        sum_g = sum_g + gw;
        sum_gn = sum_gn + gw * normal;
    });
    if (ds == nullptr) return;
    const T count = static_cast<T>(columns);
    const Vec<T> mean_g(sum(sum_g) / count), mean_gn(sum(sum_gn) / count);
    for_each_vector(columns, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        const Vec<T> normal = (Vec<T>::load(s + i, n) - st.mean) * st.inverse_deviation;
        const Vec<T> gw = Vec<T>::load(grad + i, n) * Vec<T>::load(weight + i, n);
        ((gw - mean_g - normal * mean_gn) * st.inverse_deviation).store(ds + i, n);
    });
}

/// dx = ds * factors, and its sum for the bias.
template <class T>
void scale_row(const T* ds, const T* factors, T* dx, T* sums, int64_t columns) {
    for_each_vector(columns, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        const Vec<T> t = Vec<T>::load(ds + i, n) * Vec<T>::load(factors + i, n);
        t.store(dx + i, n);
        if (sums != nullptr) (Vec<T>::load(sums + i, n) + t).store(sums + i, n);
    });
}

/// A row on its way: where it is, its model's parameters, and s = what is normalised.
template <class T>
struct Row {
    int64_t first;
    const T *s, *weight, *norm_bias, *factors;
};

template <class T, class Start, class Body>
void for_each_row(const LayerNormArguments& args, int64_t begin, int64_t end, void* scratch, Start start, Body body) {
    const int64_t columns = args.rows.columns;
    T *s = static_cast<T*>(scratch), *ones = s + padded(columns), *zeros = ones + columns, *room = zeros + columns;
    fill(ones, columns, T(1));
    fill(zeros, columns, T(0));
    for (int64_t t = begin; t < end; ++t) {
        const Task task = task_at(args.rows, t);
        const int64_t parameter = task.model * columns;
        const T* bias = args.bias == nullptr ? zeros : at<T>(args.bias, parameter);
        Row<T> row{0, s, ones, zeros, ones};
        if (args.weight != nullptr) row.weight = at<T>(args.weight, parameter);
        if (args.norm_bias != nullptr) row.norm_bias = at<T>(args.norm_bias, parameter);
        DropoutRule rule{};
        if (args.dropout.p != nullptr) rule = dropout_rule(args.dropout, task.model);
        start(t);
        for (int64_t i = task.first_row; i < task.last_row; ++i) {
            row.first = (task.model * args.rows.rows + i) * columns;
            if (args.dropout.p != nullptr) row.factors = dropout_factors(rule, i * columns, columns, room);
            const T* x = at<T>(args.x, args.shared_x ? i * columns : row.first);
            if (args.residual != nullptr)
                composite_row(x, bias, row.factors, at<T>(args.residual, row.first), s, columns);
            else
                row.s = x;
            body(row);
        }
    }
}

template <class T>
void forward(const LayerNormArguments& args, int64_t begin, int64_t end, void* scratch) {
    for_each_row<T>(
        args, begin, end, scratch, [](int64_t) {},
        [&](const Row<T>& row) {
            normalise_row(row.s, row.weight, row.norm_bias, static_cast<T*>(args.y) + row.first, args.rows.columns,
                          args.eps);
        });
}

template <class T>
void backward(const LayerNormArguments& args, int64_t begin, int64_t end, void* scratch) {
    const int64_t columns = args.rows.columns;
    T *weight_sums = nullptr, *norm_bias_sums = nullptr, *bias_sums = nullptr;
    const auto start = [&](int64_t task) {
        weight_sums = mutable_at<T>(args.weight_sums, task * columns);
        norm_bias_sums = mutable_at<T>(args.norm_bias_sums, task * columns);
        bias_sums = mutable_at<T>(args.bias_sums, task * columns);
        T* const each[] = {weight_sums, norm_bias_sums, bias_sums};
        for (T* sums : each)
            if (sums != nullptr) fill(sums, columns, T(0));
    };
    const auto body = [&](const Row<T>& row) {
        T* dx = mutable_at<T>(args.dx, row.first);
        T* ds = args.residual == nullptr ? dx : static_cast<T*>(args.dresidual) + row.first;
        backward_row(row.s, at<T>(args.grad, row.first), row.weight, weight_sums, norm_bias_sums, ds, columns,
                     args.eps);
        if (args.residual != nullptr) scale_row(ds, row.factors, dx, bias_sums, columns);
    };
    for_each_row<T>(args, begin, end, scratch, start, body);
}

}  // namespace

void layer_norm_forward(const LayerNormArguments& args, int64_t begin, int64_t end, void* scratch) {
    if (args.dtype == DType::kFloat64) return forward<double>(args, begin, end, scratch);
    forward<float>(args, begin, end, scratch);
}

void layer_norm_backward(const LayerNormArguments& args, int64_t begin, int64_t end, void* scratch) {
    if (args.dtype == DType::kFloat64) return backward<double>(args, begin, end, scratch);
    backward<float>(args, begin, end, scratch);
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
