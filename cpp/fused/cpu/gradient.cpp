// SPDX-License-Identifier: MIT
// gradient_norms: chunks of all models spread over torch's threads, then added in order.
#include "fused/gradient_operators.hpp"

#include "fused/cpu/gradient_kernel.hpp"
#include "fused/cpu/parallel.hpp"

namespace dnnsuite::fused {
namespace {

struct Norms {
    static void norms(const GradientArguments& args, const Tensor& norms) {
        const int64_t tasks = args.models * args.chunks, grain = 4;
        std::vector<double> parts(static_cast<size_t>(tasks));
        const auto kernel = DNNSUITE_SELECT(gradient_parts);
        torch::stable::parallel_for(0, tasks, grain,
                                    [&](int64_t begin, int64_t end) { kernel(args, begin, end, parts.data()); });
        auto* out = static_cast<double*>(norms.data_ptr());
        for (int64_t model = 0; model < args.models; ++model) {
            double total = 0.0;
            for (int64_t i = 0; i < args.chunks; ++i)
                total = generic::norm_join(args.norm, total, parts[static_cast<size_t>(model * args.chunks + i)]);
            out[model] = generic::norm_finish(args.norm, args.power, total);
        }
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) { GradientOperators<Norms>::implement(m); }

}  // namespace dnnsuite::fused
