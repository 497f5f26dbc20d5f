// SPDX-License-Identifier: MIT
// Layer norm, plain or of residual + dropout(x + bias). A warp owns a row and keeps it in shared memory.
#include "fused/kernels/device.cuh"

namespace dnnsuite::fused::kernels {
namespace {

constexpr int kMaxWarps = 4;
constexpr size_t kSharedBytes = 48 * 1024;
constexpr int kSumColumns = 32, kSumRows = 8;

/// What is normalised: element `column` of row `row` of `model`.
template <class T>
__device__ accumulated<T> value_at(const LayerNormArguments& args, const DropoutRule& rule, int64_t model, int64_t row,
                                   int64_t column) {
    using A = accumulated<T>;
    const int64_t columns = args.rows.columns, inside = row * columns + column;
    const int64_t index = model * args.rows.rows * columns + inside;
    A s = load(static_cast<const T*>(args.x), index);
    if (args.residual == nullptr) return s;
    if (args.bias != nullptr) s += load(static_cast<const T*>(args.bias), model * columns + column);
    if (args.dropout.p != nullptr) s *= static_cast<A>(dropout_factor(rule, static_cast<uint64_t>(inside)));
    return s + load(static_cast<const T*>(args.residual), index);
}

template <class T>
__device__ accumulated<T> parameter_at(const void* base, int64_t index, double absent) {
    return base == nullptr ? accumulated<T>(absent) : load(static_cast<const T*>(base), index);
}

/// One row's values (in shared memory when they fit) and statistics.
template <class T>
struct WarpRow {
    using A = accumulated<T>;
    int64_t model, row, first;  // first: index of its first element
    A* kept;
    DropoutRule rule;
    A mean, inverse_deviation;

    __device__ A value(const LayerNormArguments& args, int64_t i) const {
        return kept != nullptr ? kept[i] : value_at<T>(args, rule, model, row, i);
    }
    __device__ A normal(const LayerNormArguments& args, int64_t i) const {
        return (value(args, i) - mean) * inverse_deviation;
    }

    __device__ WarpRow(const LayerNormArguments& args, int64_t index, A* room) : kept(nullptr), rule{} {
        const int64_t columns = args.rows.columns, lane = threadIdx.x;
        model = index / args.rows.rows;
        row = index % args.rows.rows;
        first = index * columns;
        if (args.dropout.p != nullptr) rule = dropout_rule(args.dropout, model);
        A total = A(0), squares = A(0);
        for (int64_t i = lane; i < columns; i += kWarp) {
            const A s = value(args, i);
            if (room != nullptr) room[i] = s;
            total += s;
        }
        kept = room;  // a lane reads back only what it wrote
        mean = warp_sum(total) / static_cast<A>(columns);
        for (int64_t i = lane; i < columns; i += kWarp) {
            const A d = value(args, i) - mean;
            squares += d * d;
        }
        const A variance = warp_sum(squares) / static_cast<A>(columns);
        inverse_deviation = A(1) / square_root(variance + static_cast<A>(args.eps));
    }
};

template <class T>
__device__ accumulated<T>* room_of_warp(bool keep, int64_t columns) {
    extern __shared__ double shared[];
    return keep ? reinterpret_cast<accumulated<T>*>(shared) + threadIdx.y * columns : nullptr;
}

template <class T>
__global__ void forward_kernel(LayerNormArguments args, bool keep) {
    const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y, columns = args.rows.columns;
    if (index >= args.rows.models * args.rows.rows) return;
    const WarpRow<T> row(args, index, room_of_warp<T>(keep, columns));
    for (int64_t i = threadIdx.x; i < columns; i += kWarp) {
        const int64_t p = row.model * columns + i;
        const auto y =
            row.normal(args, i) * parameter_at<T>(args.weight, p, 1.0) + parameter_at<T>(args.norm_bias, p, 0.0);
        store(static_cast<T*>(args.y), row.first + i, y);
    }
}

/// dx and dresidual of a row; the statistics are kept for the sums.
template <class T>
__global__ void backward_kernel(LayerNormArguments args, bool keep) {
    using A = accumulated<T>;
    const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y, columns = args.rows.columns;
    if (index >= args.rows.models * args.rows.rows) return;
    const WarpRow<T> row(args, index, room_of_warp<T>(keep, columns));
    const T* grad = static_cast<const T*>(args.grad) + row.first;
    A sum_g = A(0), sum_gn = A(0);
    for (int64_t i = threadIdx.x; i < columns; i += kWarp) {
        const A g = load(grad, i) * parameter_at<T>(args.weight, row.model * columns + i, 1.0);
        sum_g += g;
        sum_gn += g * row.normal(args, i);
    }
    const A mean_g = warp_sum(sum_g) / static_cast<A>(columns), mean_gn = warp_sum(sum_gn) / static_cast<A>(columns);
    for (int64_t i = threadIdx.x; i < columns; i += kWarp) {
        const A g = load(grad, i) * parameter_at<T>(args.weight, row.model * columns + i, 1.0);
        A ds = (g - mean_g - row.normal(args, i) * mean_gn) * row.inverse_deviation;
        if (args.residual != nullptr) {
            store(static_cast<T*>(args.dresidual), row.first + i, ds);
            if (args.dropout.p != nullptr)
                ds *= static_cast<A>(dropout_factor(row.rule, static_cast<uint64_t>(row.row * columns + i)));
        }
        store(static_cast<T*>(args.dx), row.first + i, ds);
    }
    if (threadIdx.x == 0) {
        static_cast<A*>(args.statistics)[2 * index] = row.mean;
        static_cast<A*>(args.statistics)[2 * index + 1] = row.inverse_deviation;
    }
}

template <class A>
__device__ void write_sum(void* sums, int64_t index, A (&partial)[kSumRows][kSumColumns], A value) {
    if (sums == nullptr) return;  // the same for all threads
    __syncthreads();
    partial[threadIdx.y][threadIdx.x] = value;
    __syncthreads();
    if (threadIdx.y != 0 || index < 0) return;
    for (int i = 1; i < kSumRows; ++i) value += partial[i][threadIdx.x];
    static_cast<A*>(sums)[index] = value;
}

/// The parameters' gradients summed over a task's rows: 32 columns a block, 8 threads share the rows of each.
template <class T>
__global__ void __launch_bounds__(kSumColumns* kSumRows) sums_kernel(LayerNormArguments args) {
    using A = accumulated<T>;
    const Rows& rows = args.rows;
    __shared__ A partial[kSumRows][kSumColumns];
    const int64_t column = static_cast<int64_t>(blockIdx.x) * kSumColumns + threadIdx.x;
    const int64_t task = blockIdx.y, model = blockIdx.z, first = task * rows.rows_per_task;
    const int64_t last = first + rows.rows_per_task < rows.rows ? first + rows.rows_per_task : rows.rows;
    DropoutRule rule{};
    if (args.dropout.p != nullptr) rule = dropout_rule(args.dropout, model);
    A weight = A(0), norm_bias = A(0), bias = A(0);
    for (int64_t r = first + threadIdx.y; r < last && column < rows.columns; r += kSumRows) {
        const int64_t row = model * rows.rows + r, element = row * rows.columns + column;
        const A* statistics = static_cast<const A*>(args.statistics) + 2 * row;
        const A g = load(static_cast<const T*>(args.grad), element);
        weight += g * (value_at<T>(args, rule, model, r, column) - statistics[0]) * statistics[1];
        norm_bias += g;
        if (args.bias_sums != nullptr) bias += load(static_cast<const T*>(args.dx), element);
    }
    const bool inside = column < rows.columns;
    const int64_t index = inside ? (model * rows.tasks_per_model + task) * rows.columns + column : -1;
    write_sum(args.weight_sums, index, partial, weight);
    write_sum(args.norm_bias_sums, index, partial, norm_bias);
    write_sum(args.bias_sums, index, partial, bias);
}

/// Warps of a block and its shared memory: as many rows as fit, none kept when not even one does.
struct Shape {
    dim3 grid, block;
    size_t shared_bytes;
    bool keep;
};

Shape shape_of(const Rows& rows, DType dtype) {
    const size_t row_bytes = static_cast<size_t>(rows.columns) * (dtype == DType::kFloat64 ? 8 : 4);
    const bool keep = row_bytes <= kSharedBytes;
    const size_t fitting = keep && row_bytes > 0 ? kSharedBytes / row_bytes : kMaxWarps;
    const unsigned warps = fitting < kMaxWarps ? static_cast<unsigned>(fitting) : kMaxWarps;
    return {dim3(blocks_for(rows.models * rows.rows, warps)), dim3(kWarp, warps), keep ? warps * row_bytes : 0, keep};
}

}  // namespace

cudaError_t layer_norm_forward(const LayerNormArguments& args, cudaStream_t stream) {
    if (args.rows.models * args.rows.rows == 0) return cudaSuccess;
    const Shape s = shape_of(args.rows, args.dtype);
    return by_dtype(args.dtype, [&](auto tag) {
        forward_kernel<pointed_to<decltype(tag)>><<<s.grid, s.block, s.shared_bytes, stream>>>(args, s.keep);
    });
}

cudaError_t layer_norm_backward(const LayerNormArguments& args, cudaStream_t stream) {
    const Rows& rows = args.rows;
    const Shape s = shape_of(rows, args.dtype);
    const dim3 sum_grid(blocks_for(rows.columns, kSumColumns), static_cast<unsigned>(rows.tasks_per_model),
                        static_cast<unsigned>(rows.models));
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        if (rows.models == 0) return;
        if (rows.rows > 0) backward_kernel<T><<<s.grid, s.block, s.shared_bytes, stream>>>(args, s.keep);
        sums_kernel<T><<<sum_grid, dim3(kSumColumns, kSumRows), 0, stream>>>(args);
    });
}

}  // namespace dnnsuite::fused::kernels
