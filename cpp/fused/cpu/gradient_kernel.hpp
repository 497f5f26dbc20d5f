// SPDX-License-Identifier: MIT
#pragma once

#include "fused/cpu/isa.hpp"
#include "fused/math/gradient.hpp"

namespace dnnsuite::fused {

/// parts[model * chunks + chunk] for the chunks [begin, end) of all models.
DNNSUITE_KERNEL(gradient_parts, const GradientArguments& args, int64_t begin, int64_t end, double* parts)

}  // namespace dnnsuite::fused
