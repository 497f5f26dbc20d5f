// SPDX-License-Identifier: MIT
#pragma once

#include "fused/arguments.hpp"
#include "fused/cpu/isa.hpp"

namespace dnnsuite::fused {

/// Tasks [begin, end) of `rows.tasks()`.
DNNSUITE_KERNEL(cross_entropy_forward, const CrossEntropyArguments& args, int64_t begin, int64_t end)
DNNSUITE_KERNEL(cross_entropy_backward, const CrossEntropyArguments& args, int64_t begin, int64_t end)

}  // namespace dnnsuite::fused
