// SPDX-License-Identifier: MIT
// CUDA's language and run time as far as the kernels of cpp/fused/kernels use them, on the host: blocks run one after
// the other, the threads of a block as fibres that change at barriers and shuffles only. A wait that never ends is an
// exception, and so is a launch that a GPU would refuse an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static  // one block at a time
#define CUDART_VERSION 13000

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_in = 1, unsigned y_in = 1, unsigned z_in = 1) : x(x_in), y(y_in), z(z_in) {}
};

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidConfiguration = 9 };
using cudaStream_t = struct CUstream_st*;

struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes = 0;
    cudaStream_t stream = nullptr;
};

namespace host_cuda {

constexpr unsigned kLanes = 32;
constexpr size_t kSharedBytes = 48 * 1024;  // what a kernel gets without asking for more

/// Threads run in descending order: a result that changes with it lacks a barrier.
extern bool descending;
/// A thread of a kernel is running. After each block `after_block` is called, if it is set: for tools that count accesses.
extern bool in_kernel;
extern void (*after_block)();
/// Launches since the program began, and the threads of all of them.
extern int64_t launches;

/// Runs body() as every thread of every block.
cudaError_t run(const cudaLaunchConfig_t& config, const std::function<void()>& body);

void wait_for_block();
void wait_for_warp();
/// What lane (this lane ^ mask) gives; all lanes of the warp must call it.
uint64_t exchange(uint64_t value, unsigned mask);
/// The block's dynamic shared memory, NaN when the block begins.
void* dynamic_shared();

}  // namespace host_cuda

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

inline void __syncthreads() { host_cuda::wait_for_block(); }
inline void __syncwarp() { host_cuda::wait_for_warp(); }
inline void __threadfence() {}

template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
    uint64_t bits = 0;
    static_assert(sizeof(T) <= sizeof(bits));
    std::memcpy(&bits, &value, sizeof(T));
    bits = host_cuda::exchange(bits, static_cast<unsigned>(mask));
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}

inline unsigned __ballot_sync(unsigned, bool vote) {
    unsigned bits =
        vote ? 1u << (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % host_cuda::kLanes : 0;
    for (unsigned mask = host_cuda::kLanes / 2; mask > 0; mask /= 2)
        bits |= static_cast<unsigned>(host_cuda::exchange(bits, mask));
    return bits;
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }

inline unsigned atomicInc(unsigned* at, unsigned last) {
    const unsigned old = *at;
    *at = old >= last ? 0 : old + 1;
    return old;
}

cudaError_t cudaGetLastError();

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               const Arguments&... arguments) {
    return host_cuda::run(*config, [&] { kernel(arguments...); });
}
