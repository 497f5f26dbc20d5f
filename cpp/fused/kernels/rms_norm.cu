// SPDX-License-Identifier: MIT
// RMS norm. A warp owns a row and keeps it in shared memory.
#include "fused/kernels/row.cuh"

namespace dnnsuite::fused::kernels {
namespace {

/// One row and 1 / sqrt(mean of x² + eps).
template <class T>
struct RmsRow {
    using A = accumulated<T>;
    int64_t index, columns, parameter;
    const T* x;
    bool whole;
    Kept<T> kept;
    A inverse;

    __device__ RmsRow(const RmsNormArguments& args, int64_t index_in, bool keep, bool whole_in)
        : index(index_in), columns(args.rows.columns), parameter(quotient(index, args.rows.rows) * columns),
          x(static_cast<const T*>(args.x) + index * columns), whole(whole_in), kept(keep, columns) {
        A squares = A(0);
        for_each_pack<T>(kWarp, columns, [&](int64_t i) {
            const Values<T> v = load_pack(x, i, columns, whole);
            kept.put(i, v);
            DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) squares += v[j] * v[j];
        });
        inverse = A(1) / square_root(warp_sum(squares) / static_cast<A>(columns) + static_cast<A>(args.eps));
    }
    __device__ Values<T> value(int64_t i) const {
        return kept.get(i, [&](int64_t at) { return load_pack(x, at, columns, whole); });
    }
    __device__ Values<T> weight(const RmsNormArguments& args, int64_t i) const {
        return load_pack_or<T>(args.weight, parameter + i, parameter + columns, whole, 1.0);
    }
};

template <class T>
__global__ void __launch_bounds__(kMaxWarps* kWarp) forward_kernel(RmsNormArguments args, bool keep, bool whole) {
    const int64_t index = row_of_warp();
    if (index >= args.rows.models * args.rows.rows) return;
    const RmsRow<T> row(args, index, keep, whole);
    T* y = static_cast<T*>(args.y) + index * row.columns;
    for_each_pack<T>(kWarp, row.columns, [&](int64_t i) {
        Values<T> v = row.value(i);
        const Values<T> weight = row.weight(args, i);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) v[j] = v[j] * row.inverse * weight[j];
        store_pack(y, i, row.columns, whole, v);
    });
}

/// dx of a row; its inverse root is kept for the sums.
template <class T>
__global__ void __launch_bounds__(kMaxWarps* kWarp)
    backward_kernel(RmsNormArguments args, accumulated<T>* roots, bool keep, bool whole) {
    using A = accumulated<T>;
    const int64_t index = row_of_warp();
    if (index >= args.rows.models * args.rows.rows) return;
    const RmsRow<T> row(args, index, keep, whole);
    const T* grad = static_cast<const T*>(args.grad) + index * row.columns;
    const auto weighted = [&](int64_t i) {
        Values<T> g = load_pack(grad, i, row.columns, whole);
        const Values<T> weight = row.weight(args, i);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) g[j] *= weight[j];
        return g;
    };
    A product = A(0);
    for_each_pack<T>(kWarp, row.columns, [&](int64_t i) {
        const Values<T> g = weighted(i), v = row.value(i);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) product += g[j] * v[j];
    });
    const A curve = row.inverse * row.inverse * (warp_sum(product) / static_cast<A>(row.columns));
    for_each_pack<T>(kWarp, row.columns, [&](int64_t i) {
        Values<T> g = weighted(i);
        const Values<T> v = row.value(i);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) g[j] = (g[j] - v[j] * curve) * row.inverse;
        store_pack(static_cast<T*>(args.dx) + index * row.columns, i, row.columns, whole, g);
    });
    if (threadIdx.x == 0) roots[index] = row.inverse;
}

/// The weight's gradient summed over a task's rows.
template <class T>
__global__ void __launch_bounds__(kSumColumns* kSumRows)
    sums_kernel(RmsNormArguments args, const accumulated<T>* roots) {
    using A = accumulated<T>;
    const ColumnTask at(args.rows);
    A sum = A(0);
    for (int64_t r = at.first; r < at.last; r += kSumRows) {
        const int64_t row = at.model * args.rows.rows + r, element = row * args.rows.columns + at.column;
        sum +=
            load(static_cast<const T*>(args.grad), element) * load(static_cast<const T*>(args.x), element) * roots[row];
    }
    write_column_sum(args.weight_sums, at.place, sum);
}

template <class T>
bool whole_of(const RmsNormArguments& args) {
    return in_packs<T>(args.rows.columns, {args.x, args.weight, args.grad, args.y, args.dx});
}

}  // namespace

cudaError_t rms_norm_forward(const RmsNormArguments& args, cudaStream_t stream) {
    if (args.rows.models * args.rows.rows == 0) return cudaSuccess;
    const RowShape s = row_shape(args.rows, args.dtype);
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        launch(forward_kernel<T>, s.grid, s.block, s.shared_bytes, stream, args, s.keep, whole_of<T>(args));
    });
}

cudaError_t rms_norm_backward(const RmsNormArguments& args, void* roots, cudaStream_t stream) {
    const Rows& rows = args.rows;
    const RowShape s = row_shape(rows, args.dtype);
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        auto* room = static_cast<accumulated<T>*>(roots);
        if (rows.models == 0) return;
        if (rows.rows > 0)
            launch(backward_kernel<T>, s.grid, s.block, s.shared_bytes, stream, args, room, s.keep, whole_of<T>(args));
        if (args.weight_sums != nullptr)
            launch(sums_kernel<T>, column_grid(rows), dim3(kSumColumns, kSumRows), 0, stream, args, room);
    });
}

}  // namespace dnnsuite::fused::kernels
