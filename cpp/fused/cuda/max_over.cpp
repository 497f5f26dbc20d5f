// SPDX-License-Identifier: MIT
#include "fused/max_over_operators.hpp"

#include "fused/cuda/device.hpp"

namespace dnnsuite::fused {
namespace {

struct Backend {
    static void forward(const MaxArguments& args, const Tensor& like) {
        on_device(like, [&](cudaStream_t stream) { return kernels::max_over(args, stream); });
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CUDA, m) { MaxOperators<Backend>::implement(m); }

}  // namespace dnnsuite::fused
