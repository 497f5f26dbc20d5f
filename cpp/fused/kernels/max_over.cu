// SPDX-License-Identifier: MIT
// The largest over a dimension and where it is. Of a run of numbers a warp finds it; of columns a block has 32, with 8
// threads to each.
#include "fused/math/max_over.hpp"

#include "fused/kernels/pack.cuh"

namespace dnnsuite::fused::kernels {
namespace {

constexpr int kColumns = 32, kRows = 8, kThreads = kColumns * kRows;

template <class T>
__device__ void write(const MaxArguments& args, int64_t place, const Found<accumulated<T>>& best) {
    store(static_cast<T*>(args.values), place, best.value);
    args.indices[place] = best.at;
}

/// inner = 1 and no sign: a warp for each slice.
template <class T>
__global__ void __launch_bounds__(kThreads) run_kernel(MaxArguments args, bool whole) {
    using A = accumulated<T>;
    const int64_t slice = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.y;
    if (slice >= args.models * args.outer) return;
    const T* x = static_cast<const T*>(args.x) + slice * args.count;
    Found<A> best{A(0), -1};
    for_each_pack<T>(kWarp, args.count, [&](int64_t i) {
        const Values<T> v = load_pack(x, i, args.count, whole);
        for (int j = 0; j < kPack<T>; ++j)
            if (i + j < args.count) best = larger(best, Found<A>{v[j], i + j});
    });
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
        const A value = __shfl_xor_sync(kAllLanes, best.value, distance);
        const int64_t at = __shfl_xor_sync(kAllLanes, best.at, distance);
        best = larger(best, Found<A>{value, at});
    }
    if (threadIdx.x == 0) write<T>(args, slice, best);
}

/// Neighbouring threads have neighbouring columns: loads are whole lines.
template <class T>
__global__ void __launch_bounds__(kThreads) columns_kernel(MaxArguments args, unsigned blocks) {
    using A = accumulated<T>;
    __shared__ A values[kRows][kColumns];  // two arrays: neighbours in one have banks of their own
    __shared__ int64_t places[kRows][kColumns];
    const unsigned slice_of_block = blockIdx.x / blocks;
    const int64_t slice = slice_of_block;
    const int64_t column = static_cast<int64_t>(blockIdx.x - slice_of_block * blocks) * kColumns + threadIdx.x;
    const bool inside = column < args.inner;
    const T *x = static_cast<const T*>(args.x) + slice * args.count * args.inner,
            *sign = static_cast<const T*>(args.sign);
    const A times = inside && sign != nullptr ? load(sign, quotient(slice, args.outer) * args.inner + column) : A(1);
    Found<A> best{A(0), -1};
    for (int64_t k = threadIdx.y; k < args.count && inside; k += kRows)
        best = larger(best, Found<A>{load(x, k * args.inner + column) * times, k});
    values[threadIdx.y][threadIdx.x] = best.value;
    places[threadIdx.y][threadIdx.x] = best.at;
    __syncthreads();
    if (threadIdx.y != 0 || !inside) return;
    for (int i = 1; i < kRows; ++i) best = larger(best, Found<A>{values[i][threadIdx.x], places[i][threadIdx.x]});
    write<T>(args, slice * args.inner + column, best);
}

}  // namespace

cudaError_t max_over(const MaxArguments& args, cudaStream_t stream) {
    const int64_t slices = args.models * args.outer;
    const unsigned blocks = blocks_for(args.inner, kColumns);
    if (slices * args.inner == 0) return cudaSuccess;
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        const dim3 block(kColumns, kRows);
        if (args.inner == 1 && args.sign == nullptr)
            launch(run_kernel<T>, blocks_for(slices, kRows), block, 0, stream, args, in_packs<T>(args.count, {args.x}));
        else
            launch(columns_kernel<T>, static_cast<unsigned>(slices * blocks), block, 0, stream, args, blocks);
    });
}

}  // namespace dnnsuite::fused::kernels
