// SPDX-License-Identifier: MIT
// Running the tasks of arguments.hpp on torch's threads, and adding up what they summed.
#pragma once

#include <memory>

#include "fused/checks.hpp"

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

/// The sums of each task [B, tasks, columns], to be added up into [B, columns]. With one task they are the same.
class TaskSums {
  public:
    TaskSums(const Tensor& like, const Rows& rows)
        : rows_(rows),
          total_(new_tensor(like, {rows.models, rows.columns})),
          parts_(rows.tasks_per_model == 1 ? total_
                                           : new_tensor(like, {rows.models, rows.tasks_per_model, rows.columns})) {}

    void* parts() const { return parts_.data_ptr(); }

    /// Adds the tasks in order and returns the total.
    Tensor total() const {
        if (rows_.tasks_per_model > 1) {
            if (total_.scalar_type() == ScalarType::Double)
                add<double>();
            else
                add<float>();
        }
        return total_;
    }

  private:
    template <class T>
    void add() const {
        const T* part = static_cast<const T*>(parts_.data_ptr());
        T* total = static_cast<T*>(total_.data_ptr());
        for (int64_t model = 0; model < rows_.models; ++model, total += rows_.columns) {
            for (int64_t task = 0; task < rows_.tasks_per_model; ++task, part += rows_.columns)
                for (int64_t i = 0; i < rows_.columns; ++i) total[i] = task == 0 ? part[i] : total[i] + part[i];
        }
    }

    Rows rows_;
    Tensor total_, parts_;
};

}  // namespace dnnsuite::fused
