// SPDX-License-Identifier: MIT
// One time step of a recurrent layer: a thread has one number of the state, neighbours have neighbouring ones.
#include "fused/kernels/device.cuh"
#include "fused/math/recurrence_step.hpp"

namespace dnnsuite::fused::kernels {
namespace {

constexpr int kThreads = 256;

struct DeviceMemory {
    template <class T>
    static __device__ __forceinline__ accumulated<T> load(const T* p, int64_t i) {
        return kernels::load(p, i);
    }
    template <class T>
    static __device__ __forceinline__ void store(T* p, int64_t i, accumulated<T> value) {
        kernels::store(p, i, value);
    }
};

template <Cell cell, class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(RecurrenceStepArguments args) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (i < args.numbers()) recurrence_step<cell, T, accumulated<T>, DeviceMemory>(args, i);
}

template <Cell cell, class T>
__global__ void __launch_bounds__(kThreads) backward_kernel(RecurrenceStepArguments args) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (i < args.numbers()) recurrence_step_gradient<cell, T, accumulated<T>, DeviceMemory>(args, i);
}

}  // namespace

cudaError_t recurrence_step_forward(const RecurrenceStepArguments& args, cudaStream_t stream) {
    if (args.numbers() == 0) return cudaSuccess;
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        by_cell(args.cell, [&](auto cell) {
            constexpr Cell c = decltype(cell)::value;
            launch(forward_kernel<c, T>, blocks_for(args.numbers(), kThreads), kThreads, 0, stream, args);
        });
    });
}

cudaError_t recurrence_step_backward(const RecurrenceStepArguments& args, cudaStream_t stream) {
    if (args.numbers() == 0) return cudaSuccess;
    return by_dtype(args.dtype, [&](auto tag) {
        using T = pointed_to<decltype(tag)>;
        by_cell(args.cell, [&](auto cell) {
            constexpr Cell c = decltype(cell)::value;
            launch(backward_kernel<c, T>, blocks_for(args.numbers(), kThreads), kThreads, 0, stream, args);
        });
    });
}

}  // namespace dnnsuite::fused::kernels
