// SPDX-License-Identifier: MIT
// Loss and gradient of each row; the log-sum-exp is kept between them. Compiled once per instruction set.
#include "fused/cpu/cross_entropy_kernel.hpp"

#include "fused/cpu/tasks.hpp"
#include "fused/cpu/vector_math.hpp"
#include "fused/math/cross_entropy.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

template <class T>
T log_sum_exp(const T* logits, int64_t classes) {
    Vec<T> high(logits[0]);
    const int64_t whole = classes / kLanes * kLanes, rest = classes - whole;
    for (int64_t i = 0; i < whole; i += kLanes) high = maximum(high, Vec<T>::load(logits + i));
    T top = largest(high);
    for (int64_t i = whole; i < classes; ++i) top = top < logits[i] ? logits[i] : top;
    Vec<T> total(T(0));
    for (int64_t i = 0; i < whole; i += kLanes) total = total + exponential(Vec<T>::load(logits + i) - Vec<T>(top));
    if (rest > 0) total = total + keep_first(exponential(Vec<T>::load(logits + whole, rest) - Vec<T>(top)), rest);
    return top + std::log(sum(total));
}

template <class T>
T mean_of(const T* logits, int64_t classes) {
    Vec<T> total(T(0));
    for_each_vector(classes, [&](int64_t i, int64_t n)
                                 __attribute__((always_inline)) { total = total + Vec<T>::load(logits + i, n); });
    return sum(total) / static_cast<T>(classes);
}

template <class T>
void backward_row(const T* logits, int64_t target, T log_sum, T scale, T smoothing, T* out, int64_t classes) {
    const T even = target_probability<T>(false, smoothing, static_cast<T>(classes));
    for_each_vector(classes, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        const Vec<T> probability = exponential(Vec<T>::load(logits + i, n) - Vec<T>(log_sum));
        ((probability - Vec<T>(even)) * Vec<T>(scale)).store(out + i, n);
    });
    out[target] -= (T(1) - smoothing) * scale;
}

/// Calls row(index of the row among all, its target) for the rows of the tasks.
template <class Row>
void for_each_row(const CrossEntropyArguments& args, int64_t begin, int64_t end, Row row) {
    for (int64_t t = begin; t < end; ++t) {
        const Task task = task_at(args.rows, t);
        for (int64_t i = task.first_row; i < task.last_row; ++i) {
            const int64_t index = task.model * args.rows.rows + i;
            row(index, args.target[index]);
        }
    }
}

template <class T>
void forward(const CrossEntropyArguments& args, int64_t begin, int64_t end) {
    const int64_t classes = args.rows.columns;
    const T smoothing = static_cast<T>(args.label_smoothing);
    for_each_row(args, begin, end, [&](int64_t row, int64_t target) {
        T loss = T(0), log_sum = T(0);
        if (target != args.ignore_index) {
            const T* logits = at<T>(args.logits, row * classes);
            log_sum = log_sum_exp(logits, classes);
            const T mean = smoothing > T(0) ? mean_of(logits, classes) : T(0);
            loss = row_cross_entropy(log_sum, logits[target], mean, smoothing);
        }
        static_cast<T*>(args.row_loss)[row] = loss;
        static_cast<T*>(args.log_sum)[row] = log_sum;
    });
}

template <class T>
void backward(const CrossEntropyArguments& args, int64_t begin, int64_t end) {
    const int64_t classes = args.rows.columns;
    for_each_row(args, begin, end, [&](int64_t row, int64_t target) {
        T* out = static_cast<T*>(args.dlogits) + row * classes;
        if (target == args.ignore_index) return fill(out, classes, T(0));
        backward_row(at<T>(args.logits, row * classes), target, at<T>(args.saved_log_sum, 0)[row],
                     at<T>(args.scale, 0)[row], static_cast<T>(args.label_smoothing), out, classes);
    });
}

}  // namespace

void cross_entropy_forward(const CrossEntropyArguments& args, int64_t begin, int64_t end) {
    if (args.dtype == DType::kFloat64) return forward<double>(args, begin, end);
    forward<float>(args, begin, end);
}

void cross_entropy_backward(const CrossEntropyArguments& args, int64_t begin, int64_t end) {
    if (args.dtype == DType::kFloat64) return backward<double>(args, begin, end);
    backward<float>(args, begin, end);
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
