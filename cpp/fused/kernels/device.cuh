// SPDX-License-Identifier: MIT
// What the kernels share: storage and computing types, dispatch by dtype, sums over a warp or a block.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "fused/kernels/kernels.hpp"

namespace dnnsuite::fused::kernels {

using namespace generic;  // NOLINT: the formulas of math/, compiled for the device

/// The type that arithmetic and sums are done in.
template <class T>
struct Accumulated {
    using type = float;
};
template <>
struct Accumulated<double> {
    using type = double;
};
template <class T>
using accumulated = typename Accumulated<T>::type;

__device__ __forceinline__ float load(const float* p, int64_t i) { return p[i]; }
__device__ __forceinline__ double load(const double* p, int64_t i) { return p[i]; }
__device__ __forceinline__ float load(const __nv_bfloat16* p, int64_t i) { return __bfloat162float(p[i]); }
__device__ __forceinline__ float load(const __half* p, int64_t i) { return __half2float(p[i]); }
__device__ __forceinline__ void store(float* p, int64_t i, float v) { p[i] = v; }
__device__ __forceinline__ void store(double* p, int64_t i, double v) { p[i] = v; }
__device__ __forceinline__ void store(__nv_bfloat16* p, int64_t i, float v) { p[i] = __float2bfloat16(v); }
__device__ __forceinline__ void store(__half* p, int64_t i, float v) { p[i] = __float2half(v); }

/// Starts a kernel. An error is kept by the runtime: `by_dtype` returns it.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
            const Arguments&... arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    cudaLaunchKernelEx(&config, kernel, arguments...);
}

#ifdef __CUDACC__
/// The block's memory of `shared_bytes`.
__device__ __forceinline__ void* dynamic_shared() {
    extern __shared__ double shared[];
    return shared;
}
#else  // the tests run the kernels on the host
using host_cuda::dynamic_shared;
#endif

/// Calls `function` with a null pointer to the storage type of `dtype`.
template <class Function>
cudaError_t by_dtype(DType dtype, const Function& function) {
    switch (dtype) {
        case DType::kFloat32: function(static_cast<const float*>(nullptr)); break;
        case DType::kFloat64: function(static_cast<const double*>(nullptr)); break;
        case DType::kBFloat16: function(static_cast<const __nv_bfloat16*>(nullptr)); break;
        case DType::kFloat16: function(static_cast<const __half*>(nullptr)); break;
    }
    return cudaGetLastError();
}
template <class Pointer>
struct PointedTo;
template <class T>
struct PointedTo<const T*> {
    using type = T;
};
template <class Pointer>
using pointed_to = typename PointedTo<Pointer>::type;

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;

/// Every lane gets the sum (butterfly: the same tree always).
template <class A>
__device__ __forceinline__ A warp_sum(A value) {
    for (int distance = kWarp / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(kAllLanes, value, distance);
    return value;
}
template <class A>
__device__ __forceinline__ A warp_max(A value) {
    for (int distance = kWarp / 2; distance > 0; distance /= 2)
        value = maximum(value, __shfl_xor_sync(kAllLanes, value, distance));
    return value;
}

/// Sum or maximum over a block of `Threads`; every thread gets it. All threads must call it.
template <int Threads, bool is_max, class A>
__device__ A block_reduce(A value) {
    __shared__ A partial[Threads / kWarp];
    value = is_max ? warp_max(value) : warp_sum(value);
    __syncthreads();  // an earlier reduction's reads are over
    if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = value;
    __syncthreads();
    A total = partial[0];
    for (int i = 1; i < Threads / kWarp; ++i) total = is_max ? maximum(total, partial[i]) : total + partial[i];
    return total;
}

__device__ __forceinline__ float device_exp(float x) { return ::expf(x); }
__device__ __forceinline__ double device_exp(double x) { return ::exp(x); }
__device__ __forceinline__ float device_log(float x) { return ::logf(x); }
__device__ __forceinline__ double device_log(double x) { return ::log(x); }

inline unsigned blocks_for(int64_t count, int64_t per_block) {
    return static_cast<unsigned>((count + per_block - 1) / per_block);
}

}  // namespace dnnsuite::fused::kernels
