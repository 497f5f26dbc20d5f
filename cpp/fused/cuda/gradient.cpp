// SPDX-License-Identifier: MIT
#include "fused/gradient_operators.hpp"

#include "fused/cuda/device.hpp"

namespace dnnsuite::fused {
namespace {

struct Norms {
    static void norms(const GradientArguments& args, const Tensor& norms) {
        const int64_t count = args.models * args.chunks;
        const Tensor parts = GradientOperators<Norms>::doubles(norms, count > 0 ? count : 1);
        on_device(norms, [&](cudaStream_t stream) {
            return kernels::gradient_norms(args, static_cast<double*>(parts.data_ptr()),
                                           static_cast<double*>(norms.data_ptr()), stream);
        });
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CUDA, m) { GradientOperators<Norms>::implement(m); }

}  // namespace dnnsuite::fused
