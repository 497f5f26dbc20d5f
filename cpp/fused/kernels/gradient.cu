// SPDX-License-Identifier: MIT
// Norms of models' gradients: a block sums a chunk, then a block per model adds its chunks in order.
#include "fused/kernels/pack.cuh"

namespace dnnsuite::fused::kernels {
namespace {

constexpr int kThreads = 256;

#if CUDART_VERSION >= 12010
constexpr int kMaxEntries = 1000;  // arguments of up to 32 KiB
#else
constexpr int kMaxEntries = 120;  // 4 KiB
#endif

struct Table {
    GradientArguments args;
    int64_t first_chunk;
    int count;
    GradientEntry entry[kMaxEntries];
};
static_assert(sizeof(Table) <= 32764);

/// Joins the threads' values by a fixed tree; the result is thread 0's.
__device__ double join_block(Norm norm, double value) {
    __shared__ double shared[kThreads];
    shared[threadIdx.x] = value;
    for (int distance = kThreads / 2; distance > 0; distance /= 2) {
        __syncthreads();
        if (static_cast<int>(threadIdx.x) < distance)
            shared[threadIdx.x] = norm_join(norm, shared[threadIdx.x], shared[threadIdx.x + distance]);
    }
    return shared[0];
}

template <class T>
__global__ void __launch_bounds__(kThreads) parts_kernel(const __grid_constant__ Table table, double* parts) {
    const int64_t chunk = table.first_chunk + blockIdx.x, model = blockIdx.y;
    int low = 0, high = table.count;  // the last entry whose first chunk is not behind this one
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (table.entry[middle].first_chunk <= chunk)
            low = middle;
        else
            high = middle;
    }
    const GradientEntry& entry = table.entry[low];
    const int64_t first = (chunk - entry.first_chunk) * kGradientChunk;
    const int64_t end = first + kGradientChunk < entry.elements ? first + kGradientChunk : entry.elements;
    const T* x = static_cast<const T*>(entry.data) + model * entry.stride;
    const Norm norm = table.args.norm;
    double total = 0.0;
    const bool aligned = reinterpret_cast<uintptr_t>(x) % 16 == 0;
    for_each_pack<T>(kThreads, end - first, [&](int64_t i) {
        const int64_t at = first + i;
        const Values<T> v = load_pack(x, at, end, aligned && at + kPack<T> <= end);
        DNNSUITE_UNROLL for (int j = 0; j < kPack<T>; ++j) {
            if (at + j >= end) break;
            total = norm_join(norm, total, norm_term(norm, table.args.power, static_cast<double>(v[j])));
        }
    });
    total = join_block(norm, total);
    if (threadIdx.x == 0) parts[model * table.args.chunks + chunk] = total;
}

__global__ void __launch_bounds__(kThreads)
    join_kernel(Norm norm, double power, int64_t chunks, const double* parts, double* norms) {
    const int64_t model = blockIdx.x;
    double total = 0.0;
    for (int64_t i = threadIdx.x; i < chunks; i += kThreads) total = norm_join(norm, total, parts[model * chunks + i]);
    total = join_block(norm, total);
    if (threadIdx.x == 0) norms[model] = norm_finish(norm, power, total);
}

}  // namespace

cudaError_t gradient_norms(const GradientArguments& args, double* parts, double* norms, cudaStream_t stream) {
    const auto models = static_cast<unsigned>(args.models);
    for (int64_t begin = 0; begin < args.entry_count; begin += kMaxEntries) {
        const int64_t end = begin + kMaxEntries < args.entry_count ? begin + kMaxEntries : args.entry_count;
        Table table{};
        table.args = args;
        table.args.entries = nullptr;  // the host's copy
        table.first_chunk = args.entries[begin].first_chunk;
        for (int64_t i = begin; i < end; ++i) table.entry[table.count++] = args.entries[i];
        const int64_t last = end < args.entry_count ? args.entries[end].first_chunk : args.chunks;
        const dim3 grid(static_cast<unsigned>(last - table.first_chunk), models);
        const cudaError_t error = by_dtype(args.dtype, [&](auto tag) {
            launch(parts_kernel<pointed_to<decltype(tag)>>, grid, kThreads, 0, stream, table, parts);
        });
        if (error != cudaSuccess) return error;
    }
    launch(join_kernel, models, kThreads, 0, stream, args.norm, args.power, args.chunks, parts, norms);
    return cudaGetLastError();
}

}  // namespace dnnsuite::fused::kernels
