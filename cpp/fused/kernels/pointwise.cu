// SPDX-License-Identifier: MIT
// Bias, activation, dropout and residual in one pass. A thread makes one call of the generator, which decides over
// eight elements, 16 apart; neighbouring threads have neighbouring elements.
#include "fused/kernels/device.cuh"
#include "fused/math/activation.hpp"

namespace dnnsuite::fused::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = 8;

/// The eight factors of generator call `c` of a model.
struct Factors {
    uint32_t word[4];
    uint32_t threshold;
    float scale;

    __device__ Factors(const DropoutArguments& dropout, int64_t model, uint64_t c) {
        threshold = 0;
        scale = 1.0f;
        word[0] = word[1] = word[2] = word[3] = 0;
        if (dropout.p == nullptr) return;
        const DropoutRule rule = dropout_rule(dropout, model);
        word[0] = static_cast<uint32_t>(c);
        word[1] = static_cast<uint32_t>(c >> 32);
        word[2] = rule.step0;
        word[3] = rule.step1;
        philox4x32<kDropoutRounds>(word, rule.key0, rule.key1);
        threshold = rule.threshold;
        scale = rule.scale;
    }
    __device__ float operator[](int k) const {
        const uint32_t bits = k % 2 == 0 ? word[k / 2] & 0xFFFFu : word[k / 2] >> 16;
        return bits < threshold ? 0.0f : scale;
    }
};

template <Activation kind, class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(PointwiseArguments args) {
    using A = accumulated<T>;
    const int64_t c = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, model = blockIdx.y;
    const int64_t begin = c / 16 * kDropoutBlock + c % 16, base = model * args.rows.elements;
    if (begin >= args.rows.elements) return;
    const T *x = static_cast<const T*>(args.x), *bias = static_cast<const T*>(args.bias);
    const T* residual = static_cast<const T*>(args.residual);
    const Factors factors(args.dropout, model, static_cast<uint64_t>(c));
    DNNSUITE_UNROLL for (int k = 0; k < kPerThread; ++k) {
        const int64_t e = begin + 16 * k;
        if (e >= args.rows.elements) break;
        A t = load(x, base + e);
        if (bias != nullptr) t += load(bias, model * args.rows.columns + e % args.rows.columns);
        t = activate<kind>(t) * static_cast<A>(factors[k]);
        if (residual != nullptr) t += load(residual, base + e);
        store(static_cast<T*>(args.y), base + e, t);
    }
}

template <Activation kind, class T>
__global__ void __launch_bounds__(kThreads) backward_kernel(PointwiseArguments args) {
    using A = accumulated<T>;
    const int64_t c = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, model = blockIdx.y;
    const int64_t begin = c / 16 * kDropoutBlock + c % 16, base = model * args.rows.elements;
    if (begin >= args.rows.elements) return;
    const T *x = static_cast<const T*>(args.x), *bias = static_cast<const T*>(args.bias);
    const Factors factors(args.dropout, model, static_cast<uint64_t>(c));
    DNNSUITE_UNROLL for (int k = 0; k < kPerThread; ++k) {
        const int64_t e = begin + 16 * k;
        if (e >= args.rows.elements) break;
        A t = load(static_cast<const T*>(args.grad), base + e) * static_cast<A>(factors[k]);
        if (kind != Activation::kNone) {
            A input = load(x, base + e);
            if (bias != nullptr) input += load(bias, model * args.rows.columns + e % args.rows.columns);
            t *= activation_derivative<kind>(input);
        }
        store(static_cast<T*>(args.y), base + e, t);
    }
}

constexpr int kSumColumns = 32, kSumRows = 8;

/// Sums of dx over a task's rows: a block has 32 columns, 8 threads share the rows of each.
template <class T>
__global__ void __launch_bounds__(kSumColumns* kSumRows) bias_sums_kernel(PointwiseArguments args) {
    using A = accumulated<T>;
    const Rows& rows = args.rows;
    __shared__ A partial[kSumRows][kSumColumns];
    const int64_t column = static_cast<int64_t>(blockIdx.x) * kSumColumns + threadIdx.x;
    const int64_t task = blockIdx.y, model = blockIdx.z, first = task * rows.rows_per_task;
    const int64_t last = first + rows.rows_per_task < rows.rows ? first + rows.rows_per_task : rows.rows;
    A total = A(0);
    if (column < rows.columns) {
        for (int64_t r = first + threadIdx.y; r < last; r += kSumRows)
            total += load(static_cast<const T*>(args.y), (model * rows.rows + r) * rows.columns + column);
    }
    partial[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.y != 0 || column >= rows.columns) return;
    for (int i = 1; i < kSumRows; ++i) total += partial[i][threadIdx.x];
    static_cast<A*>(args.bias_sums)[(model * rows.tasks_per_model + task) * rows.columns + column] = total;
}

template <class T>
__global__ void __launch_bounds__(kThreads) add_kernel(const accumulated<T>* sums, T* total, Rows rows) {
    using A = accumulated<T>;
    const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= rows.models * rows.columns) return;
    const int64_t model = i / rows.columns, column = i % rows.columns;
    A value = A(0);
    for (int64_t task = 0; task < rows.tasks_per_model; ++task)
        value += sums[(model * rows.tasks_per_model + task) * rows.columns + column];
    store(total, i, value);
}

dim3 grid_of(const Rows& rows) {
    const int64_t calls = (rows.elements + kDropoutBlock - 1) / kDropoutBlock * 16;
    return dim3(blocks_for(calls, kThreads), static_cast<unsigned>(rows.models));
}

}  // namespace

cudaError_t pointwise_forward(const PointwiseArguments& args, cudaStream_t stream) {
    if (args.rows.models * args.rows.elements == 0) return cudaSuccess;
    const dim3 grid = grid_of(args.rows);
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        switch (args.activation) {
            case Activation::kNone: forward_kernel<Activation::kNone, T><<<grid, kThreads, 0, stream>>>(args); break;
            case Activation::kRelu: forward_kernel<Activation::kRelu, T><<<grid, kThreads, 0, stream>>>(args); break;
            case Activation::kGelu: forward_kernel<Activation::kGelu, T><<<grid, kThreads, 0, stream>>>(args); break;
        }
    });
}

cudaError_t pointwise_backward(const PointwiseArguments& args, cudaStream_t stream) {
    const Rows& rows = args.rows;
    const dim3 grid = grid_of(rows);
    const dim3 sum_grid(blocks_for(rows.columns, kSumColumns), static_cast<unsigned>(rows.tasks_per_model),
                        static_cast<unsigned>(rows.models));
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        if (rows.models == 0) return;
        if (rows.elements > 0) switch (args.activation) {
                case Activation::kNone:
                    backward_kernel<Activation::kNone, T><<<grid, kThreads, 0, stream>>>(args);
                    break;
                case Activation::kRelu:
                    backward_kernel<Activation::kRelu, T><<<grid, kThreads, 0, stream>>>(args);
                    break;
                case Activation::kGelu:
                    backward_kernel<Activation::kGelu, T><<<grid, kThreads, 0, stream>>>(args);
                    break;
            }
        if (args.bias_sums != nullptr) bias_sums_kernel<T><<<sum_grid, dim3(kSumColumns, kSumRows), 0, stream>>>(args);
    });
}

cudaError_t add_task_sums(const void* sums, void* total, const Rows& rows, DType dtype, cudaStream_t stream) {
    const unsigned blocks = blocks_for(rows.models * rows.columns, kThreads);
    if (blocks == 0) return cudaSuccess;
    return by_dtype(dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        add_kernel<T>
            <<<blocks, kThreads, 0, stream>>>(static_cast<const accumulated<T>*>(sums), static_cast<T*>(total), rows);
    });
}

}  // namespace dnnsuite::fused::kernels
