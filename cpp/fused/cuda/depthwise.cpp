// SPDX-License-Identifier: MIT
#include "fused/depthwise_operators.hpp"

#include "fused/cuda/device.hpp"

namespace dnnsuite::fused {
namespace {

struct Backend : CudaBackend {
    static void forward(const DepthwiseArguments& args, const Tensor& like) {
        on_device(like, [&](cudaStream_t stream) { return kernels::depthwise_forward(args, stream); });
    }
    static void backward_input(const DepthwiseArguments& args, const Tensor& like) {
        on_device(like, [&](cudaStream_t stream) { return kernels::depthwise_backward_input(args, stream); });
    }
    static void backward_weight(const DepthwiseArguments& args, const Tensor& like) {
        on_device(like, [&](cudaStream_t stream) { return kernels::depthwise_backward_weight(args, stream); });
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CUDA, m) { DepthwiseOperators<Backend>::implement(m); }

}  // namespace dnnsuite::fused
