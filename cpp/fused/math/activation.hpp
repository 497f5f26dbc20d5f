// SPDX-License-Identifier: MIT
// Activations and their derivatives. GELU is the exact form x * Phi(x), Phi the normal distribution function.
#pragma once

#include "fused/math/portable.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

/// Phi(x) and its derivative, the normal density. The CPU's vector versions are in cpu/vector_math.hpp.
template <class T>
struct Normal {
    T distribution, density;
};

DNNSUITE_HD Normal<float> normal(float x) {
    return {0.5f * ::erfcf(-0.70710678f * x), 0.39894228f * ::expf(-0.5f * x * x)};
}
DNNSUITE_HD Normal<double> normal(double x) {
    return {0.5 * ::erfc(-0.70710678118654752 * x), 0.39894228040143268 * ::exp(-0.5 * x * x)};
}

template <Activation kind, class T>
DNNSUITE_HD T activate(T x) {
    if constexpr (kind == Activation::kRelu) return select(x < T(0), T(0), x);  // a NaN stays one
    if constexpr (kind == Activation::kGelu) return x * normal(x).distribution;
    return x;
}

template <Activation kind, class T>
DNNSUITE_HD T activation_derivative(T x) {
    if constexpr (kind == Activation::kRelu) return select(T(0) < x, T(1), T(0));
    if constexpr (kind == Activation::kGelu) {
        const Normal<T> n = normal(x);
        return n.distribution + x * n.density;
    }
    return T(1);
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
