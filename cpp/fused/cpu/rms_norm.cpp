// SPDX-License-Identifier: MIT
#include "fused/rms_norm_operators.hpp"

#include "fused/cpu/parallel.hpp"
#include "fused/cpu/rms_norm_kernel.hpp"

namespace dnnsuite::fused {
namespace {

struct RmsNormBackend : CpuBackend {
    template <class Kernel>
    static void run(const RmsNormArguments& args, const Kernel& kernel) {
        run_rows(args, kernel);
    }
    static void forward(const RmsNormArguments& args, const Tensor&) { run(args, DNNSUITE_SELECT(rms_norm_forward)); }
    static void backward(const RmsNormArguments& args, const Tensor&) { run(args, DNNSUITE_SELECT(rms_norm_backward)); }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) {
    using Operators = RmsNormOperators<RmsNormBackend>;
    Operators::implement(m);
    m.impl("rms_norm_backward_weight", TORCH_BOX(&Operators::backward_weight));
}

}  // namespace dnnsuite::fused
