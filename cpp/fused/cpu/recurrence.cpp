// SPDX-License-Identifier: MIT
#include "fused/recurrence_operators.hpp"

#include "fused/cpu/parallel.hpp"
#include "fused/cpu/recurrence_kernel.hpp"

namespace dnnsuite::fused {
namespace {

struct RecurrenceBackend : CpuBackend {
    template <class Kernel>
    static void run(RecurrenceArguments args, const Tensor& like, bool backward, const Kernel& kernel) {
        const int64_t gates = gates_of(args.cell) * args.hidden;
        if (args.models * args.rows * args.hidden == 0) return;
        const int64_t depth = backward ? gates : args.hidden, columns = backward ? args.hidden : gates;
        // A single step from no state multiplies by no weight.
        const int64_t packs = args.steps > 1 || args.h0 != nullptr ? args.models : 0;
        const Tensor room = new_tensor(like, {packs, depth, recurrence_columns(columns)});
        args.packed = room.data_ptr();
        const auto pack = DNNSUITE_SELECT(recurrence_pack);
        torch::stable::parallel_for(0, packs, 1, [&](int64_t begin, int64_t end) { pack(args, backward, begin, end); });
        const int64_t per_model = (args.rows + kRecurrenceRows - 1) / kRecurrenceRows;
        const int64_t work = kRecurrenceRows * args.steps * gates * args.hidden;
        run_tasks(args.models * per_model, work, recurrence_scratch(args),
                  [&](int64_t begin, int64_t end, void* scratch) { kernel(args, begin, end, scratch); });
    }
    static void forward(const RecurrenceArguments& args, const Tensor& like) {
        run(args, like, false, DNNSUITE_SELECT(recurrence_forward));
    }
    static void backward(const RecurrenceArguments& args, const Tensor& like) {
        run(args, like, true, DNNSUITE_SELECT(recurrence_backward));
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) { RecurrenceOperators<RecurrenceBackend>::implement(m); }

}  // namespace dnnsuite::fused
