// SPDX-License-Identifier: MIT
// Embedding. Backward: a block owns some rows of a model's table and adds what belongs to them in the order of the
// indices, so no two threads add to one number. An index outside the table gives NaN, not a stray read.
#include "fused/kernels/pack.cuh"

namespace dnnsuite::fused::kernels {
namespace {

constexpr int kThreads = 256;

/// A thread copies one element, or a whole pack of a row.
template <class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(EmbeddingArguments args, bool whole) {
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, model = blockIdx.y;
    const int64_t i = whole ? thread * kPack<T> : thread;
    if (i >= args.count * args.columns) return;
    const int64_t row = quotient(i, args.columns), column = i - row * args.columns;
    const int64_t index = args.indices[model * args.index_stride + row];
    const int64_t from = (model * args.vocabulary + index) * args.columns + column;
    const int64_t to = model * args.count * args.columns + i;
    const T* weight = static_cast<const T*>(args.weight);
    T* out = static_cast<T*>(args.out);
    if (index < 0 || index >= args.vocabulary)
        store_pack(out, to, to + 1, whole, load_pack_or<T>(nullptr, 0, 0, whole, static_cast<double>(NAN)));
    else if (whole)
        *reinterpret_cast<Pack<T>*>(out + to) = *reinterpret_cast<const Pack<T>*>(weight + from);
    else
        out[to] = weight[from];
}

/// Rows of the table of one block: 32 KiB of sums.
template <class A>
constexpr int kRows = 32 * 1024 / (kThreads * static_cast<int>(sizeof(A)));

/// The indices of a tile that belong to this block's rows, in their order: each thread looks at one, and ballots say where
/// in the list it goes.
struct Matches {
    int row[kThreads], position[kThreads], of_warp[kThreads / kWarp];

    /// Lists the thread's own index if `mine`; returns how many there are. All threads must call it.
    __device__ int list(int own_row, bool mine) {
        const unsigned ballot = __ballot_sync(kAllLanes, mine), lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
        if (lane == 0) of_warp[warp] = __popc(ballot);
        __syncthreads();
        int before = 0, all = 0;
        for (unsigned w = 0; w < kThreads / kWarp; ++w) {
            before += w < warp ? of_warp[w] : 0;
            all += of_warp[w];
        }
        const int place = before + __popc(ballot & ((1u << lane) - 1));
        if (mine) {
            row[place] = own_row;
            position[place] = static_cast<int>(threadIdx.x);
        }
        __syncthreads();
        return all;
    }
};

template <class T>
__global__ void __launch_bounds__(kThreads) backward_kernel(EmbeddingArguments args) {
    using A = accumulated<T>;
    __shared__ A sums[kRows<A>][kThreads];
    __shared__ Matches matches;
    const int64_t first = static_cast<int64_t>(blockIdx.x) * kRows<A>, model = blockIdx.y;
    const int64_t column = static_cast<int64_t>(blockIdx.z) * kThreads + threadIdx.x;
    const int64_t* indices = args.indices + model * args.index_stride;
    const T* grad = static_cast<const T*>(args.grad) + model * args.count * args.columns;
    for (int r = 0; r < kRows<A>; ++r) sums[r][threadIdx.x] = A(0);
    for (int64_t begin = 0; begin < args.count; begin += kThreads) {
        const int64_t i = begin + threadIdx.x, index = i < args.count ? indices[i] : -1, row = index - first;
        const bool mine = index >= first && row < kRows<A> && index != args.padding_idx;
        const int count = matches.list(static_cast<int>(row), mine);
        for (int k = 0; k < count && column < args.columns; ++k)
            sums[matches.row[k]][threadIdx.x] += load(grad, (begin + matches.position[k]) * args.columns + column);
    }
    if (column >= args.columns) return;
    T* dweight = static_cast<T*>(args.dweight) + model * args.vocabulary * args.columns;
    for (int r = 0; r < kRows<A> && first + r < args.vocabulary; ++r)
        store(dweight, (first + r) * args.columns + column, sums[r][threadIdx.x]);
}

}  // namespace

cudaError_t embedding_forward(const EmbeddingArguments& args, cudaStream_t stream) {
    if (args.models * args.count * args.columns == 0) return cudaSuccess;
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        const bool whole = in_packs<T>(args.columns, {args.weight, args.out});
        const int64_t threads = args.count * args.columns / (whole ? kPack<T> : 1);
        const dim3 grid(blocks_for(threads, kThreads), static_cast<unsigned>(args.models));
        launch(forward_kernel<T>, grid, kThreads, 0, stream, args, whole);
    });
}

cudaError_t embedding_backward(const EmbeddingArguments& args, cudaStream_t stream) {
    if (args.models * args.vocabulary * args.columns == 0) return cudaSuccess;
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        const dim3 grid(blocks_for(args.vocabulary, kRows<accumulated<T>>), static_cast<unsigned>(args.models),
                        blocks_for(args.columns, kThreads));
        launch(backward_kernel<T>, grid, kThreads, 0, stream, args);
    });
}

}  // namespace dnnsuite::fused::kernels
