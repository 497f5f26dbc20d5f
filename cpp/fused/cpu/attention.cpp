// SPDX-License-Identifier: MIT
#include "fused/attention_operators.hpp"

#include "fused/cpu/attention_kernel.hpp"
#include "fused/cpu/parallel.hpp"

namespace dnnsuite::fused {
namespace {

struct AttentionBackend {
    template <class Kernel>
    static void run(const AttentionArguments& args, const Kernel& kernel) {
        const int64_t work = args.length * args.length * args.heads * (args.head_dim + 8) / 4;  // of one sequence
        run_tasks(args.models * args.sequences, work, attention_scratch(args.length, args.head_dim),
                  [&](int64_t begin, int64_t end, void* scratch) { kernel(args, begin, end, scratch); });
    }
    static void forward(const AttentionArguments& args, const Tensor&) {
        run(args, DNNSUITE_SELECT(attention_forward));
    }
    static void backward(const AttentionArguments& args, const Tensor&) {
        run(args, DNNSUITE_SELECT(attention_backward));
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) { AttentionOperators<AttentionBackend>::implement(m); }

}  // namespace dnnsuite::fused
