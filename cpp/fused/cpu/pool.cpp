// SPDX-License-Identifier: MIT
#include "fused/pool_operators.hpp"

#include "fused/cpu/cache.hpp"
#include "fused/cpu/parallel.hpp"
#include "fused/cpu/pool_kernel.hpp"

namespace dnnsuite::fused {
namespace {

struct Backend {
    template <class Kernel>
    static void run(const PoolArguments& args, const Kernel& kernel) {
        const Rows& rows = args.rows;
        run_tasks(rows.tasks(), rows.rows_per_task * rows.columns, pool_scratch(args),
                  [&](int64_t begin, int64_t end, void* scratch) { kernel(args, begin, end, scratch); });
    }
    template <class Kernel>
    static void run_gradient(const PoolArguments& args, const Kernel& kernel) {
        const int64_t bytes = args.dtype == DType::kFloat64 ? 8 : 4;
        const bool streams = leaves_caches(args.rows.models * args.rows.elements * bytes);
        run(args, [&](const PoolArguments& a, int64_t begin, int64_t end, void* scratch) {
            kernel(a, streams, begin, end, scratch);
        });
    }
    static void largest(const PoolArguments& args) { run(args, DNNSUITE_SELECT(max_pool)); }
    static void largest_gradient(const PoolArguments& args) { run_gradient(args, DNNSUITE_SELECT(max_pool_backward)); }
    static void mean(const PoolArguments& args) { run(args, DNNSUITE_SELECT(avg_pool)); }
    static void mean_gradient(const PoolArguments& args) { run_gradient(args, DNNSUITE_SELECT(avg_pool_backward)); }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) { PoolOperators<Backend>::implement(m); }

}  // namespace dnnsuite::fused
