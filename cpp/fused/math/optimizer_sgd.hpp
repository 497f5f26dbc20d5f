// SPDX-License-Identifier: MIT
// Rules that step along the gradient or its sign: SGD, ASGD, Lion, Rprop; and what is done to gradients alone.
#pragma once

#include "fused/math/optimizer_rule.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

/// Gradient descent with momentum (Polyak 1964; Sutskever et al. 2013). Hyper-parameters: lr, momentum, dampening,
/// weight_decay.
template <class S, bool has_momentum>
struct Sgd {
    static constexpr int kStates = has_momentum ? 1 : 0, kScalars = 1, kHypers = 4;
    S lr, momentum, undamped, weight_decay;
    bool nesterov, first, plain;

    // The buffer begins as the gradient, undamped, in the first step with momentum; a step without leaves it as it is.
    DNNSUITE_HD explicit Sgd(const RuleValues& v)
        : lr(S(v.hyper[0])), momentum(S(v.hyper[1])), undamped(S(1.0 - v.hyper[2])), weight_decay(S(v.hyper[3])),
          nesterov(v.nesterov), first(!(v.step > 1.0)), plain(v.hyper[1] == 0.0) {}

    static DNNSUITE_HD double counted(const RuleValues& v) { return v.hyper[1] == 0.0 ? v.step - 1.0 : v.step; }

    template <class T>
    DNNSUITE_HD void update(T& parameter, T gradient, T* state) const {
        gradient = gradient + T(weight_decay) * parameter;
        if constexpr (has_momentum) {
            if (!plain) {
                state[0] = first ? gradient : T(momentum) * state[0] + T(undamped) * gradient;
                gradient = nesterov ? gradient + T(momentum) * state[0] : state[0];
            }
        }
        parameter = parameter - T(lr) * gradient;
    }
};

/// Averaged gradient descent (Polyak, Juditsky 1992). Hyper-parameters: lr, lambd, alpha, t0, weight_decay; state: the
/// average ax; second scalar: eta, the learning rate of the next step.
template <class S>
struct Asgd {
    static constexpr int kStates = 1, kScalars = 2, kHypers = 5;
    S eta, shrink, weight_decay, mu;

    DNNSUITE_HD explicit Asgd(const RuleValues& v) {
        const double rate = v.step > 1.0 ? v.carried : v.hyper[0], since = v.step - 1.0 - v.hyper[3];
        eta = S(rate);
        shrink = S(1.0 - v.hyper[1] * rate);
        weight_decay = S(v.hyper[4]);
        mu = S(1.0 / (since > 1.0 ? since : 1.0));
    }
    static DNNSUITE_HD double carry(const RuleValues& v) {
        return v.hyper[0] / ::pow(1.0 + v.hyper[1] * v.hyper[0] * v.step, v.hyper[2]);
    }

    template <class T>
    DNNSUITE_HD void update(T& parameter, T gradient, T* state) const {
        gradient = gradient + T(weight_decay) * parameter;
        parameter = T(shrink) * parameter - T(eta) * gradient;
        state[0] = mu == S(1) ? parameter : state[0] + (parameter - state[0]) * T(mu);
    }
};

/// Lion (Chen et al. 2023). Hyper-parameters: lr, beta1, beta2, weight_decay (decoupled).
template <class S>
struct Lion {
    static constexpr int kStates = 1, kScalars = 1, kHypers = 4;
    S lr, beta1, one_minus_beta1, beta2, one_minus_beta2, shrink;

    DNNSUITE_HD explicit Lion(const RuleValues& v)
        : lr(S(v.hyper[0])), beta1(S(v.hyper[1])), one_minus_beta1(S(1.0 - v.hyper[1])), beta2(S(v.hyper[2])),
          one_minus_beta2(S(1.0 - v.hyper[2])), shrink(S(1.0 - v.hyper[0] * v.hyper[3])) {}

    template <class T>
    DNNSUITE_HD void update(T& parameter, T gradient, T* state) const {
        const T direction = sign_of(T(beta1) * state[0] + T(one_minus_beta1) * gradient);
        parameter = T(shrink) * parameter - T(lr) * direction;
        state[0] = T(beta2) * state[0] + T(one_minus_beta2) * gradient;
    }
};

/// Resilient propagation (Riedmiller, Braun 1993). Hyper-parameters: lr (the first step size), eta minus, eta plus, the
/// least and largest step size; states: the last gradient, the step size of each weight.
template <class S>
struct Rprop {
    static constexpr int kStates = 2, kScalars = 1, kHypers = 5;
    S lr, minus, plus, least, largest;
    bool first;

    DNNSUITE_HD explicit Rprop(const RuleValues& v)
        : lr(S(v.hyper[0])), minus(S(v.hyper[1])), plus(S(v.hyper[2])), least(S(v.hyper[3])), largest(S(v.hyper[4])),
          first(!(v.step > 1.0)) {}

    template <class T>
    DNNSUITE_HD void update(T& parameter, T gradient, T* state) const {
        const T zero = constant<T>(0), agreement = gradient * state[0], size = first ? T(lr) : state[1];
        const auto turned = agreement < zero, kept = zero < agreement;
        state[1] =
            clamped(size * select(kept, T(plus), select(turned, T(minus), constant<T>(1))), T(least), T(largest));
        state[0] = select(turned, zero, gradient);  // after a turn the weight rests for a step
        parameter = parameter - sign_of(state[0]) * state[1];
    }
};

/// gradient <- gradient * the hyper-parameter. A factor of 1 leaves the tensor alone.
template <class S>
struct Scale {
    static constexpr int kStates = 0, kScalars = 0, kHypers = 1;
    S factor;
    DNNSUITE_HD explicit Scale(const RuleValues& v) : factor(S(v.hyper[0])) {}
    template <class T>
    DNNSUITE_HD void update(T& parameter, T, T*) const {
        parameter = parameter * T(factor);
    }
};

/// gradient <- gradient within plus and minus the hyper-parameter.
template <class S>
struct Clamp {
    static constexpr int kStates = 0, kScalars = 0, kHypers = 1;
    S limit;
    DNNSUITE_HD explicit Clamp(const RuleValues& v) : limit(S(v.hyper[0])) {}
    template <class T>
    DNNSUITE_HD void update(T& parameter, T, T*) const {
        parameter = clamped(parameter, T(S(0) - limit), T(limit));
    }
};

}  // namespace dnnsuite::fused::DNNSUITE_ISA
