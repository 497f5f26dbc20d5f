// SPDX-License-Identifier: MIT
// optimizer_plan, optimizer_step_: a step's tensors cut into chunks of one model each, spread over torch's threads.
#include "fused/optimizer_operators.hpp"

#include "fused/cpu/optimizer_kernel.hpp"
#include "fused/cpu/parallel.hpp"

namespace dnnsuite::fused {
namespace {

constexpr int64_t kChunk = 16384;  // elements: 7 arrays of them stay within L2

bool works_on(const OptimizerArguments& args, int64_t model) { return args.active == nullptr || args.active[model]; }

/// The models' scalars after the step. Parameters that step together have the same: made once for all of them.
template <class Rule>
void advance_all(const OptimizerArguments& args) {
    if (Rule::kScalars == 0) return;
    for (int64_t model = 0; model < args.models; ++model) {
        if (!works_on(args, model)) continue;
        RuleValues values{};
        double before[kOptimizerScalars] = {-1.0, 0.0}, after[kOptimizerScalars] = {0.0, 0.0};
        for (int64_t i = 0; i < args.entry_count; ++i) {
            const OptimizerEntry& entry = args.entries[i];
            double* scalar[kOptimizerScalars];
            bool same = true;
            for (int s = 0; s < Rule::kScalars; ++s) {
                scalar[s] = entry.scalar[s] + model * entry.scalar_stride[s];
                same = same && *scalar[s] == before[s];
            }
            if (!same) {
                for (int s = 0; s < Rule::kScalars; ++s) before[s] = *scalar[s];
                values = rule_values(args, entry, model);
                generic::advance<Rule>(entry, values, model);
                for (int s = 0; s < Rule::kScalars; ++s) after[s] = *scalar[s];
            }
            for (int s = 0; s < Rule::kScalars; ++s) *scalar[s] = after[s];
        }
    }
}

struct Step {
    static void run(const OptimizerArguments& args, const Tensor&) {
        std::vector<OptimizerChunk> chunks;
        chunks.reserve(static_cast<size_t>(args.models * args.entry_count));
        for (int64_t model = 0; model < args.models; ++model) {
            for (int64_t entry = 0; works_on(args, model) && entry < args.entry_count; ++entry) {
                const int64_t elements = args.entries[entry].elements;
                for (int64_t begin = 0; begin < elements; begin += kChunk)
                    chunks.push_back({model, entry, begin, begin + kChunk < elements ? begin + kChunk : elements});
            }
        }
        const auto kernel = DNNSUITE_SELECT(optimizer_step);
        const int64_t grain = 4;
        torch::stable::parallel_for(0, static_cast<int64_t>(chunks.size()), grain, [&](int64_t begin, int64_t end) {
            kernel(args, chunks.data() + begin, chunks.data() + end);
        });
        generic::with_rule<double>(args.rule, [&](auto tag) { advance_all<typename decltype(tag)::type>(args); });
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) { OptimizerOperators<Step>::implement(m); }

}  // namespace dnnsuite::fused
