// SPDX-License-Identifier: MIT
// Adam and those after it: moments of the gradient, corrected for their start at zero.
#pragma once

#include "fused/math/optimizer_rule.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

/// Beginning of the rules of this file. Hyper-parameters: lr, beta1, beta2, eps, weight_decay.
template <class S>
struct Moments {
    S beta1, one_minus_beta1, beta2, one_minus_beta2, eps;
    S l2;      // weight decay added to the gradient, 0 if decoupled
    S shrink;  // factor on the parameter: 1 - lr * weight_decay if decoupled (Loshchilov, Hutter 2019), else 1

    DNNSUITE_HD explicit Moments(const RuleValues& v)
        : beta1(S(v.hyper[1])), one_minus_beta1(S(1.0 - v.hyper[1])), beta2(S(v.hyper[2])),
          one_minus_beta2(S(1.0 - v.hyper[2])), eps(S(v.hyper[3])), l2(S(v.decoupled ? 0.0 : v.hyper[4])),
          shrink(S(v.decoupled ? 1.0 - v.hyper[0] * v.hyper[4] : 1.0)) {}

    template <class T>
    DNNSUITE_HD T first(T gradient, T& exp_avg) const {
        return exp_avg = T(beta1) * exp_avg + T(one_minus_beta1) * gradient;
    }
    template <class T>
    DNNSUITE_HD T second(T gradient, T& exp_avg_sq) const {
        return exp_avg_sq = T(beta2) * exp_avg_sq + T(one_minus_beta2) * gradient * gradient;
    }
    static DNNSUITE_HD double correction(double beta, double step) { return 1.0 - ::pow(beta, step); }
};

/// Adam (Kingma, Ba 2015) and AdamW; the third state of AMSGrad (Reddi, Kale, Kumar 2018) is the largest second moment.
template <class S, bool amsgrad>
struct Adam : Moments<S> {
    static constexpr int kStates = amsgrad ? 3 : 2, kScalars = 1, kHypers = 5;
    S step_size;            // lr / (1 - beta1^step)
    S inverse_correction2;  // 1 / sqrt(1 - beta2^step)

    DNNSUITE_HD explicit Adam(const RuleValues& v)
        : Moments<S>(v), step_size(S(v.hyper[0] / this->correction(v.hyper[1], v.step))),
          inverse_correction2(S(1.0 / ::sqrt(this->correction(v.hyper[2], v.step)))) {}

    template <class T>
    DNNSUITE_HD void update(T& parameter, T gradient, T* state) const {
        gradient = gradient + T(this->l2) * parameter;
        const T mean = this->first(gradient, state[0]);
        T square = this->second(gradient, state[1]);
        if constexpr (amsgrad) square = state[2] = maximum(state[2], square);
        const T denominator = square_root(square) * T(inverse_correction2) + T(this->eps);
        parameter = T(this->shrink) * parameter - T(step_size) * mean / denominator;
    }
};

/// NAdam (Dozat 2016). A sixth hyper-parameter, momentum_decay; the second scalar is the product of the momenta.
template <class S>
struct Nadam : Moments<S> {
    static constexpr int kStates = 2, kScalars = 2, kHypers = 6;
    S gradient_step, mean_step, inverse_correction2;

    DNNSUITE_HD explicit Nadam(const RuleValues& v)
        : Moments<S>(v), inverse_correction2(S(1.0 / ::sqrt(this->correction(v.hyper[2], v.step)))) {
        const double product = carry(v), next = momentum(v, v.step + 1.0);
        gradient_step = S(v.hyper[0] * (1.0 - momentum(v, v.step)) / (1.0 - product));
        mean_step = S(v.hyper[0] * next / (1.0 - product * next));
    }

    static DNNSUITE_HD double momentum(const RuleValues& v, double step) {
        return v.hyper[1] * (1.0 - 0.5 * ::pow(0.96, step * v.hyper[5]));
    }
    static DNNSUITE_HD double carry(const RuleValues& v) {
        return (v.step > 1.0 ? v.carried : 1.0) * momentum(v, v.step);
    }

    template <class T>
    DNNSUITE_HD void update(T& parameter, T gradient, T* state) const {
        gradient = gradient + T(this->l2) * parameter;
        const T mean = this->first(gradient, state[0]);
        const T denominator = square_root(this->second(gradient, state[1])) * T(inverse_correction2) + T(this->eps);
        parameter = T(this->shrink) * parameter - (T(gradient_step) * gradient + T(mean_step) * mean) / denominator;
    }
};

/// RAdam (Liu et al. 2020): plain momentum until the second moment's variance is tractable.
template <class S>
struct Radam : Moments<S> {
    static constexpr int kStates = 2, kScalars = 1, kHypers = 5;
    S step_size, rectified;  // lr / (1 - beta1^step); rectification * sqrt(1 - beta2^step), 0 while it has none

    DNNSUITE_HD explicit Radam(const RuleValues& v)
        : Moments<S>(v), step_size(S(v.hyper[0] / this->correction(v.hyper[1], v.step))), rectified(S(0)) {
        const double decay = v.hyper[2], correction2 = this->correction(decay, v.step);
        const double limit = 2.0 / (1.0 - decay) - 1.0;
        const double rho = limit - 2.0 * v.step * ::pow(decay, v.step) / correction2;
        if (rho > 5.0) {
            const double ratio = (rho - 4.0) * (rho - 2.0) * limit / ((limit - 4.0) * (limit - 2.0) * rho);
            rectified = S(::sqrt(ratio * correction2));
        }
    }

    template <class T>
    DNNSUITE_HD void update(T& parameter, T gradient, T* state) const {
        gradient = gradient + T(this->l2) * parameter;
        T change = T(step_size) * this->first(gradient, state[0]);
        const T square = this->second(gradient, state[1]);
        if (rectified > S(0)) change = change * T(rectified) / (square_root(square) + T(this->eps));
        parameter = T(this->shrink) * parameter - change;
    }
};

/// Adamax (Kingma, Ba 2015): the second state is the largest gradient, decaying.
template <class S>
struct Adamax : Moments<S> {
    static constexpr int kStates = 2, kScalars = 1, kHypers = 5;
    S step_size;  // lr / (1 - beta1^step)

    DNNSUITE_HD explicit Adamax(const RuleValues& v)
        : Moments<S>(v), step_size(S(v.hyper[0] / this->correction(v.hyper[1], v.step))) {}

    template <class T>
    DNNSUITE_HD void update(T& parameter, T gradient, T* state) const {
        gradient = gradient + T(this->l2) * parameter;
        const T mean = this->first(gradient, state[0]);
        state[1] = maximum(T(this->beta2) * state[1], magnitude(gradient) + T(this->eps));
        parameter = parameter - T(step_size) * mean / state[1];
    }
};

}  // namespace dnnsuite::fused::DNNSUITE_ISA
