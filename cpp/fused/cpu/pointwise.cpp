// SPDX-License-Identifier: MIT
#include "fused/pointwise_operators.hpp"

#include "fused/cpu/parallel.hpp"
#include "fused/cpu/pointwise_kernel.hpp"

namespace dnnsuite::fused {
namespace {

struct PointwiseBackend : CpuBackend {
    template <class Kernel>
    static void run(const PointwiseArguments& args, const Kernel& kernel) {
        const Rows& rows = args.rows;
        run_tasks(rows.tasks(), rows.rows_per_task * rows.columns, pointwise_scratch(rows.columns),
                  [&](int64_t begin, int64_t end, void* scratch) { kernel(args, begin, end, scratch); });
    }
    static void forward(const PointwiseArguments& args, const Tensor&) {
        run(args, DNNSUITE_SELECT(pointwise_forward));
    }
    static void backward(const PointwiseArguments& args, const Tensor&) {
        run(args, DNNSUITE_SELECT(pointwise_backward));
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) { PointwiseOperators<PointwiseBackend>::implement(m); }

}  // namespace dnnsuite::fused
