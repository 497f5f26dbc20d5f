// SPDX-License-Identifier: MIT
#include "fused/optimizer_operators.hpp"

#include "fused/cuda/device.hpp"

namespace dnnsuite::fused {
namespace {

struct Step {
    static void run(const OptimizerArguments& args, const Tensor& like) {
        on_device(like, [&](cudaStream_t stream) { return kernels::optimizer_step(args, stream); });
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CUDA, m) { OptimizerOperators<Step>::implement(m); }

}  // namespace dnnsuite::fused
