// SPDX-License-Identifier: MIT
#include "fused/attention_operators.hpp"

#include "fused/cuda/device.hpp"

namespace dnnsuite::fused {
namespace {

struct Backend {
    static void forward(const AttentionArguments& args, const Tensor& like) {
        on_device(like, [&](cudaStream_t stream) { return kernels::attention_forward(args, stream); });
    }
    static void backward(const AttentionArguments& args, const Tensor& like) {
        on_device(like, [&](cudaStream_t stream) { return kernels::attention_backward(args, stream); });
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CUDA, m) { AttentionOperators<Backend>::implement(m); }

}  // namespace dnnsuite::fused
