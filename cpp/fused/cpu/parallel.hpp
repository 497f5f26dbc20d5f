// SPDX-License-Identifier: MIT
// Running the tasks of arguments.hpp on torch's threads, and adding up what they summed.
#pragma once

#include <memory>

#include "fused/tensors.hpp"

namespace dnnsuite::fused {

/// Calls kernel(begin, end, scratch) over all tasks, with `scratch_elements` numbers of at most 8 bytes each.
template <class Kernel>
void run_tasks(int64_t tasks, int64_t elements_per_task, int64_t scratch_elements, const Kernel& kernel) {
    const int64_t worthwhile = 16384;  // elements below which a second thread costs more than it brings
    const int64_t grain = elements_per_task >= worthwhile ? 1 : worthwhile / (elements_per_task + 1) + 1;
    torch::stable::parallel_for(0, tasks, grain, [&](int64_t begin, int64_t end) {
        const std::unique_ptr<double[]> scratch(new double[static_cast<size_t>(scratch_elements)]);
        kernel(begin, end, static_cast<void*>(scratch.get()));
    });
}

/// Calls kernel(args, begin, end) over all tasks of `args.rows`.
template <class Arguments, class Kernel>
void run_rows(const Arguments& args, const Kernel& kernel) {
    run_tasks(args.rows.tasks(), args.rows.rows_per_task * args.rows.columns, 0,
              [&](int64_t begin, int64_t end, void*) { kernel(args, begin, end); });
}

template <class T>
void add_tasks(const T* part, T* total, const Rows& rows) {
    for (int64_t model = 0; model < rows.models; ++model, total += rows.columns) {
        for (int64_t task = 0; task < rows.tasks_per_model; ++task, part += rows.columns)
            for (int64_t i = 0; i < rows.columns; ++i) total[i] = task == 0 ? part[i] : total[i] + part[i];
    }
}

/// Parts of every CPU back end of an operator.
struct CpuBackend {
    static void add_task_sums(const void* parts, void* total, const Rows& rows, DType dtype, const Tensor&) {
        if (dtype == DType::kFloat64)
            add_tasks(static_cast<const double*>(parts), static_cast<double*>(total), rows);
        else
            add_tasks(static_cast<const float*>(parts), static_cast<float*>(total), rows);
    }
};

}  // namespace dnnsuite::fused
