// SPDX-License-Identifier: MIT
// adadelta_, adam_, sgd_: a step's tensors cut into chunks of one model each, spread over torch's threads.
#include "fused/optimizer_operators.hpp"

#include "fused/cpu/optimizer_kernel.hpp"
#include "fused/cpu/parallel.hpp"

namespace dnnsuite::fused {
namespace {

constexpr int64_t kChunk = 16384;  // elements: 7 arrays of them stay within L2

struct Step {
    static void run(const OptimizerArguments& args, const Tensor&) {
        std::vector<OptimizerChunk> chunks;
        for (int64_t model = 0; model < args.models; ++model) {
            for (int64_t entry = 0; entry < args.entry_count; ++entry) {
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
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) { OptimizerOperators<Step>::implement(m); }

}  // namespace dnnsuite::fused
