// SPDX-License-Identifier: MIT
#include "fused/pointwise_operators.hpp"

#include "fused/cuda/device.hpp"

namespace dnnsuite::fused {
namespace {

struct Backend : CudaBackend {
    static void forward(const PointwiseArguments& args, const Tensor& like) {
        on_device(like, [&](cudaStream_t stream) { return kernels::pointwise_forward(args, stream); });
    }
    static void backward(const PointwiseArguments& args, const Tensor& like) {
        on_device(like, [&](cudaStream_t stream) { return kernels::pointwise_backward(args, stream); });
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CUDA, m) { PointwiseOperators<Backend>::implement(m); }

}  // namespace dnnsuite::fused
