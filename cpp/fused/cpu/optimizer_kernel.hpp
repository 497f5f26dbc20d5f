// SPDX-License-Identifier: MIT
#pragma once

#include "fused/cpu/isa.hpp"
#include "fused/math/optimizer_arguments.hpp"

namespace dnnsuite::fused {

/// Elements [begin, end) of one model's part of an entry.
struct OptimizerChunk {
    int64_t model, entry, begin, end;
};

DNNSUITE_KERNEL(optimizer_step, const OptimizerArguments& args, const OptimizerChunk* begin, const OptimizerChunk* end)

}  // namespace dnnsuite::fused
