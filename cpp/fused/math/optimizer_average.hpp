// SPDX-License-Identifier: MIT
// Rules that divide by the root of an average or sum of squared gradients: Adadelta, Adagrad, RMSprop.
#pragma once

#include "fused/math/optimizer_rule.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

/// Adadelta (Zeiler 2012). Hyper-parameters: lr, rho, eps, weight_decay; states: square_avg, acc_delta.
template <class S>
struct Adadelta {
    static constexpr int kStates = 2, kScalars = 1, kHypers = 4;
    S lr, rho, one_minus_rho, eps, weight_decay;

    DNNSUITE_HD explicit Adadelta(const RuleValues& v)
        : lr(S(v.hyper[0])), rho(S(v.hyper[1])), one_minus_rho(S(1.0 - v.hyper[1])), eps(S(v.hyper[2])),
          weight_decay(S(v.hyper[3])) {}

    template <class T>
    DNNSUITE_HD void update(T& parameter, T gradient, T* state) const {
        gradient = gradient + T(weight_decay) * parameter;
        state[0] = T(rho) * state[0] + T(one_minus_rho) * gradient * gradient;
        const T delta = square_root((state[1] + T(eps)) / (state[0] + T(eps))) * gradient;
        state[1] = T(rho) * state[1] + T(one_minus_rho) * delta * delta;
        parameter = parameter - T(lr) * delta;
    }
};

/// Adagrad (Duchi, Hazan, Singer 2011). Hyper-parameters: lr, lr_decay, weight_decay, eps; state: the sum of squares.
template <class S>
struct Adagrad {
    static constexpr int kStates = 1, kScalars = 1, kHypers = 4;
    S step_size, weight_decay, eps;

    DNNSUITE_HD explicit Adagrad(const RuleValues& v)
        : step_size(S(v.hyper[0] / (1.0 + (v.step - 1.0) * v.hyper[1]))), weight_decay(S(v.hyper[2])),
          eps(S(v.hyper[3])) {}

    template <class T>
    DNNSUITE_HD void update(T& parameter, T gradient, T* state) const {
        gradient = gradient + T(weight_decay) * parameter;
        state[0] = state[0] + gradient * gradient;
        parameter = parameter - T(step_size) * gradient / (square_root(state[0]) + T(eps));
    }
};

/// RMSprop (Hinton 2012; centred: Graves 2013). Hyper-parameters: lr, alpha, eps, weight_decay, momentum; states:
/// square_avg, then grad_avg if centred, then momentum_buffer.
template <class S, bool centered, bool momentum>
struct Rmsprop {
    static constexpr int kStates = 1 + centered + momentum, kScalars = 1, kHypers = 5;
    S lr, alpha, one_minus_alpha, eps, weight_decay, mu;

    DNNSUITE_HD explicit Rmsprop(const RuleValues& v)
        : lr(S(v.hyper[0])), alpha(S(v.hyper[1])), one_minus_alpha(S(1.0 - v.hyper[1])), eps(S(v.hyper[2])),
          weight_decay(S(v.hyper[3])), mu(S(v.hyper[4])) {}

    template <class T>
    DNNSUITE_HD void update(T& parameter, T gradient, T* state) const {
        gradient = gradient + T(weight_decay) * parameter;
        T square = state[0] = T(alpha) * state[0] + T(one_minus_alpha) * gradient * gradient;
        if constexpr (centered) {
            state[1] = T(alpha) * state[1] + T(one_minus_alpha) * gradient;
            // Of a constant gradient the variance is zero; rounding must not make it negative.
            square = maximum(constant<T>(0), square - state[1] * state[1]);
        }
        T change = gradient / (square_root(square) + T(eps));
        if constexpr (momentum) change = state[1 + centered] = T(mu) * state[1 + centered] + change;
        parameter = parameter - T(lr) * change;
    }
};

}  // namespace dnnsuite::fused::DNNSUITE_ISA
