// SPDX-License-Identifier: MIT
#pragma once

#include "fused/cpu/isa.hpp"
#include "fused/norm_arguments.hpp"

namespace dnnsuite::fused {

/// The steps of one model, each to be finished before the next begins: prepare, tasks [begin, end) of
/// `rows.tasks_per_model`, combine what they summed, tasks again.
enum class BatchNormStep { kPrepare, kSums, kCombine, kApply };

DNNSUITE_KERNEL(batch_norm_forward, const BatchNormArguments& args, int64_t model, BatchNormStep step, int64_t begin,
                int64_t end, void* scratch)
DNNSUITE_KERNEL(batch_norm_backward, const BatchNormArguments& args, int64_t model, BatchNormStep step, int64_t begin,
                int64_t end, void* scratch)

/// Numbers of 8 bytes that a model needs as scratch through all its steps.
inline int64_t batch_norm_scratch(const BatchNormArguments& args) {
    const int64_t columns = args.planes ? args.channels : args.rows.columns;
    const int64_t sums = args.planes ? args.rows.rows : args.rows.tasks_per_model * columns;
    return 6 * (columns + 16) + 2 * (sums + 16) + 2 * columns;
}

}  // namespace dnnsuite::fused
