// SPDX-License-Identifier: MIT
#pragma once

#include "fused/arguments.hpp"
#include "fused/cpu/isa.hpp"

namespace dnnsuite::fused {

enum class Curve { kTanh, kGeluTanh, kMish, kSoftplus, kElu };

/// y = curve(x), and backwards dx = grad * curve'(x), of `count` float32 numbers in `rows` of any length.
/// `first` and `second` are softplus's beta and threshold; ELU's factor below 0 and its scale.
struct ActivateArguments {
    Curve curve;
    Rows rows;
    int64_t count;
    float first, second;
    const float *x, *grad;
    float* y;  // or dx
};

DNNSUITE_KERNEL(activate, const ActivateArguments& args, int64_t begin, int64_t end)
DNNSUITE_KERNEL(activate_backward, const ActivateArguments& args, int64_t begin, int64_t end)

}  // namespace dnnsuite::fused
