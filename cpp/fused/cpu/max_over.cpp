// SPDX-License-Identifier: MIT
#include "fused/max_over_operators.hpp"

#include "fused/cpu/max_over_kernel.hpp"
#include "fused/cpu/parallel.hpp"

namespace dnnsuite::fused {
namespace {

struct MaxOverBackend {
    static void forward(const MaxArguments& args, const Tensor&) {
        const auto kernel = DNNSUITE_SELECT(max_over);
        run_tasks(args.models * args.outer, args.count * args.inner, args.inner / 2 + 1,
                  [&](int64_t begin, int64_t end, void* scratch) { kernel(args, begin, end, scratch); });
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) { MaxOperators<MaxOverBackend>::implement(m); }

}  // namespace dnnsuite::fused
