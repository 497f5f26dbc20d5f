// SPDX-License-Identifier: MIT
// Softmax cross-entropy: a block owns a row. A target outside the classes gives NaN, not a stray read.
#include "fused/kernels/pack.cuh"
#include "fused/math/cross_entropy.hpp"

namespace dnnsuite::fused::kernels {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(CrossEntropyArguments args, bool whole) {
    using A = accumulated<T>;
    const int64_t row = blockIdx.x, classes = args.rows.columns, target = args.target[row];
    A *row_loss = static_cast<A*>(args.row_loss), *log_sums = static_cast<A*>(args.log_sum);
    if (target == args.ignore_index) {
        if (threadIdx.x == 0) row_loss[row] = log_sums[row] = A(0);
        return;
    }
    const T* logits = static_cast<const T*>(args.logits) + row * classes;
    A high = -static_cast<A>(INFINITY), total = A(0), plain = A(0);
    for_each_pack<T>(kThreads, classes, [&](int64_t i) {
        const Values<T> x = load_pack(logits, i, classes, whole);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) {
            if (i + j < classes) high = maximum(high, x[j]);
            plain += x[j];
        }
    });
    high = block_reduce<kThreads, true>(high);
    for_each_pack<T>(kThreads, classes, [&](int64_t i) {
        const Values<T> x = load_pack(logits, i, classes, whole);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) total += i + j < classes ? device_exp(x[j] - high) : A(0);
    });
    const A log_sum = high + device_log(block_reduce<kThreads, false>(total));
    const A smoothing = static_cast<A>(args.label_smoothing);
    const A mean = smoothing > A(0) ? block_reduce<kThreads, false>(plain) / static_cast<A>(classes) : A(0);
    if (threadIdx.x != 0) return;
    const bool valid = target >= 0 && target < classes;
    const A target_logit = valid ? static_cast<A>(load(logits, target)) : static_cast<A>(NAN);
    row_loss[row] = row_cross_entropy(log_sum, target_logit, mean, smoothing);
    log_sums[row] = log_sum;
}

template <class A>
__device__ A counted_rows(const CrossEntropyArguments& args, int64_t model) {
    A count = A(0);
    for (int64_t i = threadIdx.x; i < args.rows.rows; i += kThreads)
        count += args.target[model * args.rows.rows + i] != args.ignore_index ? A(1) : A(0);
    return block_reduce<kThreads, false>(count);
}

template <class A>
__global__ void __launch_bounds__(kThreads) reduce_kernel(CrossEntropyArguments args, bool mean, A* loss) {
    const int64_t model = blockIdx.x;
    const A* row_loss = static_cast<const A*>(args.row_loss) + model * args.rows.rows;
    A total = A(0);
    for (int64_t i = threadIdx.x; i < args.rows.rows; i += kThreads) total += row_loss[i];
    total = block_reduce<kThreads, false>(total);
    if (mean) total /= counted_rows<A>(args, model);
    if (threadIdx.x == 0) loss[model] = total;
}

template <class A>
__global__ void __launch_bounds__(kThreads)
    spread_kernel(CrossEntropyArguments args, bool mean, bool per_row, const A* grad, A* scale) {
    const int64_t model = blockIdx.x;
    const A divisor = mean ? counted_rows<A>(args, model) : A(1);
    for (int64_t i = threadIdx.x; i < args.rows.rows; i += kThreads) {
        const int64_t row = model * args.rows.rows + i;
        scale[row] = grad[per_row ? row : model] / divisor;
    }
}

template <class T>
__global__ void __launch_bounds__(kThreads) backward_kernel(CrossEntropyArguments args, bool whole) {
    using A = accumulated<T>;
    const int64_t row = blockIdx.x, classes = args.rows.columns, target = args.target[row];
    const T* logits = static_cast<const T*>(args.logits) + row * classes;
    T* dlogits = static_cast<T*>(args.dlogits) + row * classes;
    const bool counts = target != args.ignore_index;
    const A scale = counts ? static_cast<const A*>(args.scale)[row] : A(0);
    const A log_sum = static_cast<const A*>(args.saved_log_sum)[row];
    const A smoothing = static_cast<A>(args.label_smoothing);
    for_each_pack<T>(kThreads, classes, [&](int64_t i) {
        Values<T> d = load_pack(logits, i, classes, whole);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) {
            const A even = target_probability(i + j == target, smoothing, static_cast<A>(classes));
            d[j] = counts ? (device_exp(d[j] - log_sum) - even) * scale : A(0);
        }
        store_pack(dlogits, i, classes, whole, d);
    });
}

}  // namespace

cudaError_t cross_entropy_forward(const CrossEntropyArguments& args, cudaStream_t stream) {
    const int64_t rows = args.rows.models * args.rows.rows;
    if (rows == 0) return cudaSuccess;
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        const bool whole = in_packs<T>(args.rows.columns, {args.logits});
        launch(forward_kernel<T>, static_cast<unsigned>(rows), kThreads, 0, stream, args, whole);
    });
}

cudaError_t cross_entropy_reduce(const CrossEntropyArguments& args, bool mean, void* loss, cudaStream_t stream) {
    if (args.rows.models == 0) return cudaSuccess;
    return by_dtype(args.dtype, [&](auto tag) {
        using A = accumulated<pointed_to<decltype(tag)>>;
        launch(reduce_kernel<A>, static_cast<unsigned>(args.rows.models), kThreads, 0, stream, args, mean,
               static_cast<A*>(loss));
    });
}

cudaError_t cross_entropy_spread(const CrossEntropyArguments& args, bool mean, bool per_row, const void* grad,
                                 void* scale, cudaStream_t stream) {
    if (args.rows.models == 0) return cudaSuccess;
    return by_dtype(args.dtype, [&](auto tag) {
        using A = accumulated<pointed_to<decltype(tag)>>;
        launch(spread_kernel<A>, static_cast<unsigned>(args.rows.models), kThreads, 0, stream, args, mean, per_row,
               static_cast<const A*>(grad), static_cast<A*>(scale));
    });
}

cudaError_t cross_entropy_backward(const CrossEntropyArguments& args, cudaStream_t stream) {
    const int64_t rows = args.rows.models * args.rows.rows;
    if (rows == 0) return cudaSuccess;
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        const bool whole = in_packs<T>(args.rows.columns, {args.logits, args.dlogits});
        launch(backward_kernel<T>, static_cast<unsigned>(rows), kThreads, 0, stream, args, whole);
    });
}

}  // namespace dnnsuite::fused::kernels
