// SPDX-License-Identifier: MIT
// Rows of a task (see arguments.hpp), and small helpers of the row kernels.
#pragma once

#include "fused/arguments.hpp"
#include "fused/math/portable.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

/// One task: some rows of one model.
struct Task {
    int64_t model, first_row, last_row;
};

DNNSUITE_HD Task task_at(const Rows& rows, int64_t task) {
    const int64_t model = task / rows.tasks_per_model, index = task % rows.tasks_per_model;
    const int64_t first = index * rows.rows_per_task, last = first + rows.rows_per_task;
    return {model, first, last < rows.rows ? last : rows.rows};
}

template <class T>
DNNSUITE_HD void fill(T* to, int64_t count, T value) {
    for (int64_t i = 0; i < count; ++i) to[i] = value;
}

/// An element of an untyped array; null stays null.
template <class T>
DNNSUITE_HD const T* at(const void* base, int64_t offset) {
    return base == nullptr ? nullptr : static_cast<const T*>(base) + offset;
}

template <class T>
DNNSUITE_HD T* mutable_at(void* base, int64_t offset) {
    return base == nullptr ? nullptr : static_cast<T*>(base) + offset;
}

/// The next multiple of 16.
DNNSUITE_HD constexpr int64_t padded(int64_t count) { return (count + 15) / 16 * 16; }

}  // namespace dnnsuite::fused::DNNSUITE_ISA
