// SPDX-License-Identifier: MIT
// What norms over rows share: a warp owns a row and keeps it in shared memory; sums over rows are formed by columns.
#pragma once

#include "fused/kernels/mask.cuh"
#include "fused/kernels/pack.cuh"

namespace dnnsuite::fused::kernels {

constexpr int kMaxWarps = 4;
constexpr size_t kSharedBytes = 48 * 1024;

/// Numbers of room for a row of `columns` whose packs the lanes of a warp keep.
inline __host__ __device__ int64_t kept_numbers(int64_t columns, int pack) {
    return (columns + kWarp * pack - 1) / (kWarp * pack) * (kWarp * pack);
}
/// Where number j of the pack that begins at column i is kept: what the lanes of a warp access together, the j-th of each
/// one's pack, lies in 32 neighbouring words, and so in 32 banks.
template <int pack>
__host__ __device__ __forceinline__ unsigned kept_place(unsigned i, unsigned j) {
    return i / (kWarp * pack) * (kWarp * pack) + j * kWarp + i / pack % kWarp;
}

/// Warps of a block and its shared memory: as many rows as fit, none kept when not even one does. With dropout the bits of
/// each row follow all rows, and have to fit.
struct RowShape {
    dim3 grid, block;
    size_t shared_bytes;
    bool keep;
};

inline RowShape row_shape(const Rows& rows, DType dtype, bool drops = false) {
    const bool half = dtype == DType::kBFloat16 || dtype == DType::kFloat16;
    const int pack = half ? kPack<__half> : dtype == DType::kFloat64 ? kPack<double> : kPack<float>;
    const size_t mask_bytes = drops ? static_cast<size_t>(mask_words(rows.columns)) * sizeof(uint32_t) : 0;
    const size_t row_bytes = static_cast<size_t>(kept_numbers(rows.columns, pack)) * (dtype == DType::kFloat64 ? 8 : 4);
    const bool keep = row_bytes + mask_bytes <= kSharedBytes;
    const size_t of_warp = (keep ? row_bytes : 0) + mask_bytes,
                 fitting = of_warp > 0 ? kSharedBytes / of_warp : kMaxWarps;
    const unsigned warps = fitting == 0 ? 1 : fitting < kMaxWarps ? static_cast<unsigned>(fitting) : kMaxWarps;
    return {dim3(blocks_for(rows.models * rows.rows, warps)), dim3(kWarp, warps), warps * of_warp, keep};
}

/// The row of this warp among those of all models.
__device__ __forceinline__ int64_t row_of_warp() { return static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; }

/// This warp's room for its row, or null. A lane reads back only what it wrote.
template <class T>
class Kept {
  public:
    using A = accumulated<T>;
    __device__ Kept(bool keep, int64_t columns) {
        room_ = keep ? static_cast<A*>(dynamic_shared()) + threadIdx.y * kept_numbers(columns, kPack<T>) : nullptr;
    }
    __device__ void put(int64_t i, const Values<T>& v) const {
        if (room_ == nullptr) return;
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) room_[kept_place<kPack<T>>(static_cast<unsigned>(i), j)] =
            v[j];
    }
    /// The end of all warps' rooms.
    __device__ static A* end(bool keep, int64_t columns) {
        return static_cast<A*>(dynamic_shared()) + (keep ? blockDim.y * kept_numbers(columns, kPack<T>) : 0);
    }
    /// The value put at i, or read(i) when nothing is kept.
    template <class Read>
    __device__ Values<T> get(int64_t i, const Read& read) const {
        if (room_ == nullptr) return read(i);
        Values<T> v;
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) v[j] =
            room_[kept_place<kPack<T>>(static_cast<unsigned>(i), j)];
        return v;
    }

  private:
    A* room_;
};

constexpr int kSumColumns = 32, kSumRows = 8;

/// A block's share of sums over the rows of a task: 32 columns, 8 threads to each.
struct ColumnTask {
    int64_t model, task, column, first, last, place;  // place: of the sum; -1 where there is no column

    __device__ explicit ColumnTask(const Rows& rows) {
        model = blockIdx.z;
        task = blockIdx.x;
        column = static_cast<int64_t>(blockIdx.y) * kSumColumns + threadIdx.x;
        const bool inside = column < rows.columns;
        first = task * rows.rows_per_task + threadIdx.y;
        last = (task + 1) * rows.rows_per_task < rows.rows ? (task + 1) * rows.rows_per_task : rows.rows;
        if (!inside) last = first;
        place = inside ? (model * rows.tasks_per_model + task) * rows.columns + column : -1;
    }
};
inline dim3 column_grid(const Rows& rows) {
    return dim3(static_cast<unsigned>(rows.tasks_per_model), blocks_for(rows.columns, kSumColumns),
                static_cast<unsigned>(rows.models));
}

/// Adds the values of the threads of each column, in order, into sums[place]. All threads must call it.
template <class A>
__device__ void write_column_sum(void* sums, int64_t place, A value) {
    __shared__ A partial[kSumRows][kSumColumns];
    if (sums == nullptr) return;  // the same for all threads
    __syncthreads();
    partial[threadIdx.y][threadIdx.x] = value;
    __syncthreads();
    if (threadIdx.y != 0 || place < 0) return;
    for (int i = 1; i < kSumRows; ++i) value += partial[i][threadIdx.x];
    static_cast<A*>(sums)[place] = value;
}

}  // namespace dnnsuite::fused::kernels
