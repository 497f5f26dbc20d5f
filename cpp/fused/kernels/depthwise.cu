// SPDX-License-Identifier: MIT
// Depthwise convolution, channels last. A thread makes one number of the result: neighbours are channels, so loads
// are whole lines. The weight's gradient is summed per task by blocks of 32 channels, 8 threads to each.
#include "fused/kernels/device.cuh"

namespace dnnsuite::fused::kernels {
namespace {

constexpr int kThreads = 256, kSumColumns = 32, kSumRows = 8;

/// Where a number of a result [B, N, height, width, C] is.
struct Place {
    int64_t model, line, pixel, channel;  // line: of N * height
    bool inside;
};

__device__ Place place_of(const DepthwiseArguments& args, int64_t width) {
    const int64_t C = args.channels, i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const int64_t pixel = i / C;
    return {blockIdx.y, pixel / width, pixel % width, i % C, i < args.rows.rows * width * C};
}

template <class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(DepthwiseArguments args) {
    using A = accumulated<T>;
    const Window &h = args.height, &w = args.width;
    const Place at = place_of(args, w.output);
    if (!at.inside) return;
    const int64_t C = args.channels, first = at.line / h.output * h.input;
    const int64_t top = at.line % h.output * h.stride - h.padding, left = at.pixel * w.stride - w.padding;
    const T* x = static_cast<const T*>(args.x) + at.model * args.x_stride + at.channel;
    const T* weight = static_cast<const T*>(args.weight) + at.model * args.taps() * C + at.channel;
    A sum = args.bias == nullptr ? A(0) : load(static_cast<const T*>(args.bias), at.model * C + at.channel);
    for (int64_t i = 0; i < h.kernel; ++i) {
        const int64_t row = top + i * h.dilation;
        if (row < 0 || row >= h.input) continue;
        for (int64_t j = 0; j < w.kernel; ++j) {
            const int64_t column = left + j * w.dilation;
            if (column < 0 || column >= w.input) continue;
            sum += load(x, ((first + row) * w.input + column) * C) * load(weight, (i * w.kernel + j) * C);
        }
    }
    store(static_cast<T*>(args.y), ((at.model * args.rows.rows + at.line) * w.output + at.pixel) * C + at.channel, sum);
}

/// The output position that an input position went to by a tap, or -1.
__device__ int64_t target(const Window& w, int64_t position, int64_t tap) {
    const int64_t at = position + w.padding - tap * w.dilation;
    return at < 0 || at % w.stride != 0 || at / w.stride >= w.output ? -1 : at / w.stride;
}

template <class T>
__global__ void __launch_bounds__(kThreads) backward_input_kernel(DepthwiseArguments args) {
    using A = accumulated<T>;
    const Window &h = args.height, &w = args.width;
    const Place at = place_of(args, w.input);
    if (!at.inside) return;
    const int64_t C = args.channels, first = at.line / h.input * h.output;
    const T* grad = static_cast<const T*>(args.grad) + at.model * args.grad_stride + at.channel;
    const T* weight = static_cast<const T*>(args.weight) + at.model * args.taps() * C + at.channel;
    A sum = A(0);
    for (int64_t i = 0; i < h.kernel; ++i) {
        const int64_t row = target(h, at.line % h.input, i);
        if (row < 0) continue;
        for (int64_t j = 0; j < w.kernel; ++j) {
            const int64_t column = target(w, at.pixel, j);
            if (column < 0) continue;
            sum += load(grad, ((first + row) * w.output + column) * C) * load(weight, (i * w.kernel + j) * C);
        }
    }
    store(static_cast<T*>(args.y), ((at.model * args.rows.rows + at.line) * w.input + at.pixel) * C + at.channel, sum);
}

/// A tap's gradient (the last: the bias's) over the lines of a task; blockIdx.x: channels and tap.
template <class T>
__global__ void __launch_bounds__(kSumColumns* kSumRows) sums_kernel(DepthwiseArguments args, int64_t blocks) {
    using A = accumulated<T>;
    __shared__ A partial[kSumRows][kSumColumns];
    const Window &h = args.height, &w = args.width;
    const Rows& rows = args.rows;
    const int64_t C = args.channels, channel = blockIdx.x % blocks * kSumColumns + threadIdx.x;
    const int64_t tap = blockIdx.x / blocks, task = blockIdx.y, model = blockIdx.z, taps = args.taps();
    const int64_t first = task * rows.rows_per_task;
    const int64_t last = first + rows.rows_per_task < rows.rows ? first + rows.rows_per_task : rows.rows;
    const T* x = static_cast<const T*>(args.x) + model * args.x_stride;
    const T* grad = static_cast<const T*>(args.grad) + model * args.grad_stride;
    A sum = A(0);
    for (int64_t i = first * w.output + threadIdx.y; i < last * w.output && channel < C; i += kSumRows) {
        const int64_t line = i / w.output, pixel = i % w.output;
        A factor = A(1);
        if (tap < taps) {
            const int64_t row = line % h.output * h.stride - h.padding + tap / w.kernel * h.dilation;
            const int64_t column = pixel * w.stride - w.padding + tap % w.kernel * w.dilation;
            if (row < 0 || row >= h.input || column < 0 || column >= w.input) continue;
            factor = load(x, ((line / h.output * h.input + row) * w.input + column) * C + channel);
        }
        sum += factor * load(grad, i * C + channel);
    }
    partial[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || channel >= C) return;
    for (int i = 1; i < kSumRows; ++i) sum += partial[i][threadIdx.x];
    static_cast<A*>(args.sums)[((model * rows.tasks_per_model + task) * (taps + 1) + tap) * C + channel] = sum;
}

dim3 grid_of(const DepthwiseArguments& args, int64_t width) {
    return dim3(blocks_for(args.rows.rows * width * args.channels, kThreads), static_cast<unsigned>(args.rows.models));
}

}  // namespace

cudaError_t depthwise_forward(const DepthwiseArguments& args, cudaStream_t stream) {
    if (args.rows.models * args.rows.rows * args.channels == 0) return cudaSuccess;
    const dim3 grid = grid_of(args, args.width.output);
    return by_dtype(args.dtype,
                    [&](auto tag) { forward_kernel<pointed_to<decltype(tag)>><<<grid, kThreads, 0, stream>>>(args); });
}

cudaError_t depthwise_backward_input(const DepthwiseArguments& args, cudaStream_t stream) {
    if (args.rows.models * args.rows.rows * args.width.input * args.channels == 0) return cudaSuccess;
    const dim3 grid = grid_of(args, args.width.input);
    return by_dtype(args.dtype, [&](auto tag) {
        backward_input_kernel<pointed_to<decltype(tag)>><<<grid, kThreads, 0, stream>>>(args);
    });
}

cudaError_t depthwise_backward_weight(const DepthwiseArguments& args, cudaStream_t stream) {
    if (args.rows.models * args.channels == 0) return cudaSuccess;
    const int64_t blocks = blocks_for(args.channels, kSumColumns);
    const dim3 grid(static_cast<unsigned>(blocks * (args.taps() + 1)), static_cast<unsigned>(args.rows.tasks_per_model),
                    static_cast<unsigned>(args.rows.models));
    return by_dtype(args.dtype, [&](auto tag) {
        sums_kernel<pointed_to<decltype(tag)>><<<grid, dim3(kSumColumns, kSumRows), 0, stream>>>(args, blocks);
    });
}

}  // namespace dnnsuite::fused::kernels
