// SPDX-License-Identifier: MIT
#include "fused/optimizer_operators.hpp"

#include "fused/cuda/device.hpp"

namespace dnnsuite::fused {
namespace {

struct Step {
    static void run(const OptimizerArguments& args, const Tensor& like) {
        STD_TORCH_CHECK(args.tickets != nullptr || generic::rule_needs(args.rule).scalars == 0,
                        "optimizer_step_: tickets are missing: on CUDA pass int32 zeros, one per parameter and model");
        on_device(like, [&](cudaStream_t stream) { return kernels::optimizer_step(args, stream); });
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CUDA, m) { OptimizerOperators<Step>::implement(m); }

}  // namespace dnnsuite::fused
