// SPDX-License-Identifier: MIT
#pragma once

#include "fused/arguments.hpp"
#include "fused/cpu/isa.hpp"

namespace dnnsuite::fused {

/// Rows of a batch that a task takes through all time steps: no task waits for another.
constexpr int64_t kRecurrenceRows = 32;
/// Columns that a packed matrix is rounded up to.
constexpr int64_t recurrence_columns(int64_t columns) { return (columns + 31) / 32 * 32; }

/// The weights of models [begin, end) for the product of a step: forward [H, G * H], backward [G * H, H], cut into panels
/// of as many columns as the registers hold.
DNNSUITE_KERNEL(recurrence_pack, const RecurrenceArguments& args, bool backward, int64_t begin, int64_t end)
/// Tasks of models * ceil(rows / kRecurrenceRows); `scratch` holds recurrence_scratch(args) elements of the dtype.
DNNSUITE_KERNEL(recurrence_forward, const RecurrenceArguments& args, int64_t begin, int64_t end, void* scratch)
DNNSUITE_KERNEL(recurrence_backward, const RecurrenceArguments& args, int64_t begin, int64_t end, void* scratch)

inline int64_t recurrence_scratch(const RecurrenceArguments& args) {
    const int64_t gates = recurrence_columns(gates_of(args.cell) * args.hidden);
    return kRecurrenceRows * (gates + 3 * recurrence_columns(args.hidden));
}

}  // namespace dnnsuite::fused
