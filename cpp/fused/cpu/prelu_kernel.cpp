// SPDX-License-Identifier: MIT
// Rectifiers with a slope of each channel, and the gradients of both, in one pass. Compiled once per instruction set.
#include "fused/cpu/prelu_kernel.hpp"

#include "fused/cpu/tasks.hpp"
#include "fused/cpu/vector.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {
namespace {

template <class T>
T sum_of(const Vec<T>& v) {
    T lanes[kLanes], sum = T(0);
    v.store(lanes);
    for (int i = 0; i < kLanes; ++i) sum += lanes[i];
    return sum;
}

/// Calls row(first, channel, task) for the rows of tasks; first: of its numbers, channel: of its slope.
template <class Row>
void for_each_row(const PreluArguments& args, int64_t begin, int64_t end, const Row& row) {
    for (int64_t t = begin; t < end; ++t) {
        const Task task = task_at(args.rows, t);
        for (int64_t r = task.first_row; r < task.last_row; ++r) {
            const int64_t channel = args.turned ? 0 : r % args.channels;
            row((task.model * args.rows.rows + r) * args.rows.columns, task.model * args.channels + channel,
                t * args.channels + channel);
        }
    }
}

template <class T>
void forward(const PreluArguments& args, int64_t begin, int64_t end) {
    const T *const all = at<T>(args.x, 0), *const slopes = at<T>(args.slopes, 0);
    T* const results = mutable_at<T>(args.y, 0);
    const Vec<T> zero(T(0));
    for_each_row(args, begin, end, [&](int64_t first, int64_t channel, int64_t) {
        const T *const x = all + first, *const slope = slopes + channel;
        T* const y = results + first;
        const Vec<T> single(slope[0]);
        for_each_vector(args.rows.columns, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
            const Vec<T> v = Vec<T>::load(x + i, n), s = args.turned ? Vec<T>::load(slope + i, n) : single;
            select(zero < v, v, s * v).store(y + i, n);
        });
    });
}

template <class T>
void backward(const PreluArguments& args, int64_t begin, int64_t end) {
    const T *const all = at<T>(args.x, 0), *const grads = at<T>(args.grad, 0), *const slopes = at<T>(args.slopes, 0);
    T *const results = mutable_at<T>(args.dx, 0), *const all_sums = mutable_at<T>(args.sums, 0);
    const Vec<T> zero(T(0));
    fill(all_sums + begin * args.channels, (end - begin) * args.channels, T(0));
    for_each_row(args, begin, end, [&](int64_t first, int64_t channel, int64_t of_task) {
        const T *const x = all + first, *const grad = grads + first, *const slope = slopes + channel;
        T *const dx = results + first, *const sums = all_sums + of_task;
        const Vec<T> single(slope[0]);
        Vec<T> sum = zero;
        for_each_vector(args.rows.columns, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
            const Vec<T> v = Vec<T>::load(x + i, n), g = Vec<T>::load(grad + i, n);
            const Vec<T> s = args.turned ? Vec<T>::load(slope + i, n) : single;
            const auto above = zero < v;
            select(above, g, s * g).store(dx + i, n);
            const Vec<T> part = select(above, zero, v * g);
            if (args.turned)
                (Vec<T>::load(sums + i, n) + part).store(sums + i, n);
            else
                sum = sum + part;
        });
        if (!args.turned) sums[0] += sum_of(sum);
    });
}

}  // namespace

void prelu(const PreluArguments& args, int64_t begin, int64_t end) {
    if (args.dtype == DType::kFloat64) return forward<double>(args, begin, end);
    forward<float>(args, begin, end);
}

void prelu_backward(const PreluArguments& args, int64_t begin, int64_t end) {
    if (args.dtype == DType::kFloat64) return backward<double>(args, begin, end);
    backward<float>(args, begin, end);
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
