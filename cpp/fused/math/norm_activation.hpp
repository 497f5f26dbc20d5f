// SPDX-License-Identifier: MIT
// The activations that follow a normalisation in one pass with it, and their derivatives.
#pragma once

#include "fused/math/portable.hpp"

namespace dnnsuite::fused {

enum class NormActivation : int { kNone, kRelu, kRelu6, kLeakyRelu, kHardswish, kSilu };

namespace DNNSUITE_ISA {

DNNSUITE_HD float exponential(float x) { return ::expf(x); }
DNNSUITE_HD double exponential(double x) { return ::exp(x); }

/// A running statistic after a batch's, as torch's lerp has it.
template <class T>
DNNSUITE_HD T running_average(T running, T batch, T momentum) {
    const T difference = batch - running;
    return momentum < T(0.5) ? running + momentum * difference : batch - difference * (T(1) - momentum);
}

/// A NaN stays one everywhere. `slope` is that of negative numbers in a leaky ReLU.
template <NormActivation kind, class T>
DNNSUITE_HD T norm_activate(T x, T slope) {
    if constexpr (kind == NormActivation::kRelu) return select(x < T(0), T(0), x);
    if constexpr (kind == NormActivation::kRelu6) return select(T(6) < x, T(6), select(x < T(0), T(0), x));
    if constexpr (kind == NormActivation::kLeakyRelu) return select(x < T(0), x * slope, x);
    if constexpr (kind == NormActivation::kHardswish) {
        const T gate = x + T(3);
        return x * select(T(6) < gate, T(6), select(gate < T(0), T(0), gate)) * constant<T>(1.0 / 6.0);
    }
    if constexpr (kind == NormActivation::kSilu) return x / (T(1) + exponential(T(0) - x));
    return x;
}

/// At a kink the value that torch has.
template <NormActivation kind, class T>
DNNSUITE_HD T norm_derivative(T x, T slope) {
    if constexpr (kind == NormActivation::kRelu) return select(T(0) < x, T(1), T(0));
    if constexpr (kind == NormActivation::kRelu6) return select(T(0) < x, select(x < T(6), T(1), T(0)), T(0));
    if constexpr (kind == NormActivation::kLeakyRelu) return select(T(0) < x, T(1), slope);
    if constexpr (kind == NormActivation::kHardswish) {
        const T inner = x * constant<T>(1.0 / 3.0) + constant<T>(0.5);
        return select(T(-3) < x, select(x < T(3), inner, T(1)), T(0));
    }
    if constexpr (kind == NormActivation::kSilu) {
        const T s = T(1) / (T(1) + exponential(T(0) - x));
        return s * (T(1) + x * (T(1) - s));
    }
    return T(1);
}

}  // namespace DNNSUITE_ISA
}  // namespace dnnsuite::fused
