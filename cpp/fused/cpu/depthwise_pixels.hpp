// SPDX-License-Identifier: MIT
// Depthwise convolution by one tap that meets each pixel once: pixels are scaled where they lie, all channels of a
// pixel and then the next one, so that memory is read and written in order.
#pragma once

#include "fused/cpu/depthwise_kernel.hpp"
#include "fused/cpu/tasks.hpp"
#include "fused/cpu/vector.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

inline bool is_scale(const DepthwiseArguments& args) {
    const auto single = [](const Window& w) { return w.kernel == 1 && w.stride == 1 && w.padding == 0; };
    return single(args.height) && single(args.width);
}

/// The lines of a task: forward, or the gradient of the input.
template <class T>
void scale_pixels(const DepthwiseArguments& args, bool transposed, int64_t begin, int64_t end) {
    const int64_t C = args.channels, line = args.width.input * C;
    for (int64_t t = begin; t < end; ++t) {
        const Task task = task_at(args.rows, t);
        const T* const from =
            transposed ? at<T>(args.grad, task.model * args.grad_stride) : at<T>(args.x, task.model * args.x_stride);
        T* const to = mutable_at<T>(args.y, task.model * args.rows.rows * line);
        const T* const weight = at<T>(args.weight, task.model * C);
        const T* const bias = transposed ? nullptr : at<T>(args.bias, task.model * C);
        for (int64_t p = task.first_row * line; p < task.last_row * line; p += C) {
            for_each_vector(C, [&](int64_t c, int64_t n) __attribute__((always_inline)) {
                const Vec<T> scaled = Vec<T>::load(from + p + c, n) * Vec<T>::load(weight + c, n);
                (bias == nullptr ? scaled : Vec<T>::load(bias + c, n) + scaled).store(to + p + c, n);
            });
        }
    }
}

/// Sums of grad * x and of grad over the lines of a task: [2, C]. A few pixels at a time, for which sums are loaded once.
template <class T>
void scale_sums(const DepthwiseArguments& args, int64_t begin, int64_t end) {
    constexpr int64_t kPixels = 4;
    const int64_t C = args.channels, line = args.width.input * C;
    for (int64_t t = begin; t < end; ++t) {
        const Task task = task_at(args.rows, t);
        const T* const x = at<T>(args.x, task.model * args.x_stride);
        const T* const grad = at<T>(args.grad, task.model * args.grad_stride);
        T* const sums = mutable_at<T>(args.sums, t * 2 * C);
        fill(sums, 2 * C, T(0));
        const int64_t last = task.last_row * line;
        for (int64_t p = task.first_row * line; p < last; p += kPixels * C) {
            const int64_t stop = p + kPixels * C < last ? p + kPixels * C : last;
            for_each_vector(C, [&](int64_t c, int64_t n) __attribute__((always_inline)) {
                Vec<T> products = Vec<T>::load(sums + c, n), total = Vec<T>::load(sums + C + c, n);
                for (int64_t q = p; q < stop; q += C) {
                    const Vec<T> g = Vec<T>::load(grad + q + c, n);
                    products = products + g * Vec<T>::load(x + q + c, n), total = total + g;
                }
                products.store(sums + c, n), total.store(sums + C + c, n);
            });
        }
    }
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
