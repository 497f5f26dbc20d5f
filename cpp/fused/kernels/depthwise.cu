// SPDX-License-Identifier: MIT
// Depthwise convolution, channels last. A thread makes a pack of channels of a pixel, or one number where packs do not
// fit: neighbours are channels, so loads are whole lines. The weight's gradient is summed per task by blocks of 32
// channels, 8 threads to each.
#include "fused/kernels/row.cuh"

namespace dnnsuite::fused::kernels {
namespace {

constexpr int kThreads = 256;

/// Places of a thread's numbers in a result [B, N, height, width, C].
struct Place {
    int64_t model, line, pixel, channel, end;  // line: of N * height; end: one after the last channel
    bool inside;
};

template <class T>
__device__ Place place_of(const DepthwiseArguments& args, int64_t width, bool whole) {
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, each = whole ? kPack<T> : 1;
    const int64_t C = args.channels, i = thread * each, pixel = quotient(i, C), channel = i - pixel * C;
    const int64_t line = quotient(pixel, width);
    return {blockIdx.y, line, pixel - line * width, channel, channel + each, i < args.rows.rows * width * C};
}

/// Adds the products of a pack of channels: a pixel at x and a tap at weight.
template <class T>
__device__ __forceinline__ void add_products(const T* x, const T* weight, const Place& at, bool whole, Values<T>& sum) {
    const Values<T> a = load_pack(x, at.channel, at.end, whole), b = load_pack(weight, at.channel, at.end, whole);
    DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) sum[j] += a[j] * b[j];
}

template <class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(DepthwiseArguments args, bool whole) {
    const Window &h = args.height, &w = args.width;
    const Place at = place_of<T>(args, w.output, whole);
    if (!at.inside) return;
    const int64_t C = args.channels, sample = quotient(at.line, h.output), first = sample * h.input;
    const int64_t top = (at.line - sample * h.output) * h.stride - h.padding, left = at.pixel * w.stride - w.padding;
    const T* x = static_cast<const T*>(args.x) + at.model * args.x_stride;
    const T* weight = static_cast<const T*>(args.weight) + at.model * args.taps() * C;
    Values<T> sum = load_pack_or<T>(args.bias, at.model * C + at.channel, at.model * C + at.end, whole, 0.0);
    for (int64_t i = 0; i < h.kernel; ++i) {
        const int64_t row = top + i * h.dilation;
        if (row < 0 || row >= h.input) continue;
        for (int64_t j = 0; j < w.kernel; ++j) {
            const int64_t column = left + j * w.dilation;
            if (column < 0 || column >= w.input) continue;
            add_products(x + ((first + row) * w.input + column) * C, weight + (i * w.kernel + j) * C, at, whole, sum);
        }
    }
    T* y = static_cast<T*>(args.y) + ((at.model * args.rows.rows + at.line) * w.output + at.pixel) * C;
    store_pack(y, at.channel, at.end, whole, sum);
}

/// The output position that an input position went to by a tap, or -1.
__device__ int64_t target(const Window& w, int64_t position, int64_t tap) {
    const int64_t at = position + w.padding - tap * w.dilation;
    if (at < 0) return -1;
    const int64_t output = quotient(at, w.stride);
    return output * w.stride != at || output >= w.output ? -1 : output;
}

template <class T>
__global__ void __launch_bounds__(kThreads) backward_input_kernel(DepthwiseArguments args, bool whole) {
    const Window &h = args.height, &w = args.width;
    const Place at = place_of<T>(args, w.input, whole);
    if (!at.inside) return;
    const int64_t C = args.channels, sample = quotient(at.line, h.input), first = sample * h.output;
    const T* grad = static_cast<const T*>(args.grad) + at.model * args.grad_stride;
    const T* weight = static_cast<const T*>(args.weight) + at.model * args.taps() * C;
    Values<T> sum = load_pack_or<T>(nullptr, 0, 0, whole, 0.0);
    for (int64_t i = 0; i < h.kernel; ++i) {
        const int64_t row = target(h, at.line - sample * h.input, i);
        if (row < 0) continue;
        for (int64_t j = 0; j < w.kernel; ++j) {
            const int64_t column = target(w, at.pixel, j);
            if (column < 0) continue;
            add_products(grad + ((first + row) * w.output + column) * C, weight + (i * w.kernel + j) * C, at, whole,
                         sum);
        }
    }
    T* y = static_cast<T*>(args.y) + ((at.model * args.rows.rows + at.line) * w.input + at.pixel) * C;
    store_pack(y, at.channel, at.end, whole, sum);
}

/// A tap's gradient (the last: the bias's) over the lines of a task; blockIdx.y: channels and tap.
template <class T>
__global__ void __launch_bounds__(kSumColumns* kSumRows) sums_kernel(DepthwiseArguments args, int64_t blocks) {
    using A = accumulated<T>;
    const Window &h = args.height, &w = args.width;
    const Rows& rows = args.rows;
    const int64_t C = args.channels, channel = blockIdx.y % blocks * kSumColumns + threadIdx.x;
    const int64_t tap = blockIdx.y / blocks, task = blockIdx.x, model = blockIdx.z, taps = args.taps();
    const int64_t first = task * rows.rows_per_task;
    const int64_t last = first + rows.rows_per_task < rows.rows ? first + rows.rows_per_task : rows.rows;
    const T* x = static_cast<const T*>(args.x) + model * args.x_stride;
    const T* grad = static_cast<const T*>(args.grad) + model * args.grad_stride;
    const int64_t tap_row = quotient(tap, w.kernel);
    A sum = A(0);
    for (int64_t i = first * w.output + threadIdx.y; i < last * w.output && channel < C; i += kSumRows) {
        const int64_t line = quotient(i, w.output), pixel = i - line * w.output, sample = quotient(line, h.output);
        A factor = A(1);
        if (tap < taps) {
            const int64_t line_of_sample = line - sample * h.output;
            const int64_t row = line_of_sample * h.stride - h.padding + tap_row * h.dilation;
            const int64_t column = pixel * w.stride - w.padding + (tap - tap_row * w.kernel) * w.dilation;
            if (row < 0 || row >= h.input || column < 0 || column >= w.input) continue;
            factor = load(x, ((sample * h.input + row) * w.input + column) * C + channel);
        }
        sum += factor * load(grad, i * C + channel);
    }
    const int64_t place = ((model * rows.tasks_per_model + task) * (taps + 1) + tap) * C + channel;
    write_column_sum(args.sums, channel < C ? place : -1, sum);
}

template <class T>
bool whole_of(const DepthwiseArguments& args) {
    return in_packs<T>(args.channels, {args.x, args.weight, args.bias, args.grad, args.y});
}

/// Blocks for a result with lines of `width` pixels.
template <class T>
dim3 grid_of(const DepthwiseArguments& args, int64_t width, bool whole) {
    const int64_t threads = args.rows.rows * width * args.channels / (whole ? kPack<T> : 1);
    return dim3(blocks_for(threads, kThreads), static_cast<unsigned>(args.rows.models));
}

}  // namespace

cudaError_t depthwise_forward(const DepthwiseArguments& args, cudaStream_t stream) {
    if (args.rows.models * args.rows.rows * args.channels == 0) return cudaSuccess;
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        const bool whole = whole_of<T>(args);
        launch(forward_kernel<T>, grid_of<T>(args, args.width.output, whole), kThreads, 0, stream, args, whole);
    });
}

cudaError_t depthwise_backward_input(const DepthwiseArguments& args, cudaStream_t stream) {
    if (args.rows.models * args.rows.rows * args.width.input * args.channels == 0) return cudaSuccess;
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        const bool whole = whole_of<T>(args);
        launch(backward_input_kernel<T>, grid_of<T>(args, args.width.input, whole), kThreads, 0, stream, args, whole);
    });
}

cudaError_t depthwise_backward_weight(const DepthwiseArguments& args, cudaStream_t stream) {
    if (args.rows.models * args.channels == 0) return cudaSuccess;
    const int64_t blocks = blocks_for(args.channels, kSumColumns);
    const dim3 grid(static_cast<unsigned>(args.rows.tasks_per_model), static_cast<unsigned>(blocks * (args.taps() + 1)),
                    static_cast<unsigned>(args.rows.models));
    return by_dtype(args.dtype, [&](auto tag) {
        launch(sums_kernel<pointed_to<decltype(tag)>>, grid, dim3(kSumColumns, kSumRows), 0, stream, args, blocks);
    });
}

}  // namespace dnnsuite::fused::kernels
