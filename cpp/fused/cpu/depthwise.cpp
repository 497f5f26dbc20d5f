// SPDX-License-Identifier: MIT
#include "fused/depthwise_operators.hpp"

#include "fused/cpu/depthwise_kernel.hpp"
#include "fused/cpu/parallel.hpp"

namespace dnnsuite::fused {
namespace {

struct DepthwiseBackend : CpuBackend {
    template <class Kernel>
    static void run(const DepthwiseArguments& args, const Kernel& kernel) {
        const Rows& rows = args.rows;
        run_tasks(rows.tasks(), rows.rows_per_task * rows.columns, depthwise_scratch(args),
                  [&](int64_t begin, int64_t end, void* scratch) { kernel(args, begin, end, scratch); });
    }
    static void forward(const DepthwiseArguments& args, const Tensor&) {
        run(args, DNNSUITE_SELECT(depthwise_forward));
    }
    static void backward_input(const DepthwiseArguments& args, const Tensor&) {
        run(args, DNNSUITE_SELECT(depthwise_backward_input));
    }
    static void backward_weight(const DepthwiseArguments& args, const Tensor&) {
        run(args, DNNSUITE_SELECT(depthwise_backward_weight));
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) { DepthwiseOperators<DepthwiseBackend>::implement(m); }

}  // namespace dnnsuite::fused
