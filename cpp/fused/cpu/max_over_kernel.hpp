// SPDX-License-Identifier: MIT
#pragma once

#include "fused/cpu/isa.hpp"
#include "fused/norm_arguments.hpp"

namespace dnnsuite::fused {

/// Slices [begin, end) of models * outer. `scratch` holds inner numbers of 4 bytes.
DNNSUITE_KERNEL(max_over, const MaxArguments& args, int64_t begin, int64_t end, void* scratch)

}  // namespace dnnsuite::fused
