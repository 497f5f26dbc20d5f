// SPDX-License-Identifier: MIT
#include "fused/layer_norm_operators.hpp"

#include "fused/cpu/layer_norm_kernel.hpp"
#include "fused/cpu/parallel.hpp"

namespace dnnsuite::fused {
namespace {

struct LayerNormBackend : CpuBackend {
    template <class Kernel>
    static void run(const LayerNormArguments& args, const Kernel& kernel) {
        const Rows& rows = args.rows;
        run_tasks(rows.tasks(), rows.rows_per_task * rows.columns, layer_norm_scratch(rows.columns),
                  [&](int64_t begin, int64_t end, void* scratch) { kernel(args, begin, end, scratch); });
    }
    static void forward(const LayerNormArguments& args, const Tensor&) {
        run(args, DNNSUITE_SELECT(layer_norm_forward));
    }
    static void backward(const LayerNormArguments& args, const Tensor&) {
        run(args, DNNSUITE_SELECT(layer_norm_backward));
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) {
    using Operators = LayerNormOperators<LayerNormBackend>;
    Operators::implement(m);
    m.impl("layer_norm_backward_parameters", TORCH_BOX(&Operators::layer_norm_backward_parameters));
}

}  // namespace dnnsuite::fused
