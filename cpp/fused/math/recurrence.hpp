// SPDX-License-Identifier: MIT
// One step of a recurrent cell and its derivative, element by element: LSTM, GRU, and a plain tanh or relu.
#pragma once

#include "fused/math/portable.hpp"

namespace dnnsuite::fused {

enum class Cell : int { kLstm, kGru, kTanh, kRelu };

DNNSUITE_HD constexpr int64_t gates_of(Cell cell) { return cell == Cell::kLstm ? 4 : cell == Cell::kGru ? 3 : 1; }
/// Numbers per hidden unit that the backward pass wants back (LSTM: the gates; GRU: those and the state's part of n).
DNNSUITE_HD constexpr int64_t saved_of(Cell cell) { return cell == Cell::kLstm || cell == Cell::kGru ? 4 : 0; }

namespace DNNSUITE_ISA {

DNNSUITE_HD float logistic(float x) { return 1.0f / (1.0f + ::expf(-x)); }
DNNSUITE_HD double logistic(double x) { return 1.0 / (1.0 + ::exp(-x)); }
DNNSUITE_HD float hyperbolic(float x) { return ::tanhf(x); }
DNNSUITE_HD double hyperbolic(double x) { return ::tanh(x); }

/// Activated gates and the new state.
template <class T>
struct LstmStep {
    T i, f, g, o, c, h;
};

template <class T>
DNNSUITE_HD LstmStep<T> lstm_step(const T& i, const T& f, const T& g, const T& o, const T& c) {
    LstmStep<T> s{logistic(i), logistic(f), hyperbolic(g), logistic(o), c, c};
    s.c = s.f * c + s.i * s.g;
    s.h = s.o * hyperbolic(s.c);
    return s;
}

/// Gradients of the gates before activation, and of the state before the step.
template <class T>
struct LstmGradient {
    T i, f, g, o, c;
};

/// `s` with the activated gates and c of the step, `before` the c before it, `dh` and `dc` the gradients of its results.
template <class T>
DNNSUITE_HD LstmGradient<T> lstm_gradient(const LstmStep<T>& s, const T& before, const T& dh, const T& dc) {
    const T one = constant<T>(1.0), t = hyperbolic(s.c);
    const T through = dc + dh * s.o * (one - t * t);
    return {through * s.g * s.i * (one - s.i), through * before * s.f * (one - s.f), through * s.i * (one - s.g * s.g),
            dh * t * s.o * (one - s.o), through * s.f};
}

template <class T>
struct GruStep {
    T r, z, n, h;
};

/// x*: the input's part of the gates, h*: the state's part.
template <class T>
DNNSUITE_HD GruStep<T> gru_step(const T& xr, const T& xz, const T& xn, const T& hr, const T& hz, const T& hn,
                                const T& before) {
    GruStep<T> s{logistic(xr + hr), logistic(xz + hz), before, before};
    s.n = hyperbolic(xn + s.r * hn);
    s.h = (before - s.n) * s.z + s.n;
    return s;
}

/// Gradients of r and z before activation, of n's two parts, and of the state's direct way past the gates.
template <class T>
struct GruGradient {
    T r, z, xn, hn, h;
};

template <class T>
DNNSUITE_HD GruGradient<T> gru_gradient(const T& r, const T& z, const T& n, const T& hn, const T& before, const T& dh) {
    const T one = constant<T>(1.0), dn = dh * (one - z) * (one - n * n);
    return {dn * hn * r * (one - r), dh * (before - n) * z * (one - z), dn, dn * r, dh * z};
}

template <Cell cell, class T>
DNNSUITE_HD T plain_step(const T& gate) {
    if constexpr (cell == Cell::kTanh) return hyperbolic(gate);
    return select(gate < constant<T>(0.0), constant<T>(0.0), gate);  // a NaN stays one
}

/// d gate, from the step's result.
template <Cell cell, class T>
DNNSUITE_HD T plain_gradient(const T& h, const T& dh) {
    if constexpr (cell == Cell::kTanh) return dh * (constant<T>(1.0) - h * h);
    return select(constant<T>(0.0) < h, dh, constant<T>(0.0));
}

}  // namespace DNNSUITE_ISA
}  // namespace dnnsuite::fused
