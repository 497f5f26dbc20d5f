// SPDX-License-Identifier: MIT
// One element of an optimizer step, with torch.optim's formulas. The hyper-parameters are those of one model.
#pragma once

#include "fused/math/portable.hpp"

namespace dnnsuite::fused::DNNSUITE_ISA {

/// Adadelta (Zeiler 2012), as torch.optim.Adadelta. T may be a vector, S is the scalar of the constants.
template <class S>
struct AdadeltaRule {
    S lr, rho, one_minus_rho, eps, weight_decay;
};

template <class T, class S>
DNNSUITE_HD void adadelta(const AdadeltaRule<S>& rule, T& parameter, T gradient, T& square_avg, T& acc_delta) {
    gradient = gradient + T(rule.weight_decay) * parameter;
    square_avg = T(rule.rho) * square_avg + T(rule.one_minus_rho) * gradient * gradient;
    const T delta = square_root((acc_delta + T(rule.eps)) / (square_avg + T(rule.eps))) * gradient;
    acc_delta = T(rule.rho) * acc_delta + T(rule.one_minus_rho) * delta * delta;
    parameter = parameter - T(rule.lr) * delta;
}

/// Adam (Kingma, Ba 2015) and AdamW (Loshchilov, Hutter 2019), as torch.optim.Adam and AdamW.
template <class S>
struct AdamRule {
    S beta1, one_minus_beta1, beta2, one_minus_beta2, eps;
    S l2;                   // weight decay added to the gradient (Adam), 0 for AdamW
    S shrink;               // factor on the parameter, 1 - lr * weight_decay for AdamW, 1 for Adam
    S step_size;            // lr / (1 - beta1^step)
    S inverse_correction2;  // 1 / sqrt(1 - beta2^step)
};

template <class S>
DNNSUITE_HD AdamRule<S> adam_rule(double lr, double beta1, double beta2, double eps, double weight_decay, double step,
                                  bool decoupled) {
    const double correction1 = 1.0 - ::pow(beta1, step), correction2 = 1.0 - ::pow(beta2, step);
    return {S(beta1),
            S(1.0 - beta1),
            S(beta2),
            S(1.0 - beta2),
            S(eps),
            S(decoupled ? 0.0 : weight_decay),
            S(decoupled ? 1.0 - lr * weight_decay : 1.0),
            S(lr / correction1),
            S(1.0 / ::sqrt(correction2))};
}

/// `max_exp_avg_sq` is null unless AMSGrad (Reddi, Kale, Kumar 2018) is on.
template <class T, class S>
DNNSUITE_HD void adam(const AdamRule<S>& rule, T& parameter, T gradient, T& exp_avg, T& exp_avg_sq, T* max_exp_avg_sq) {
    gradient = gradient + T(rule.l2) * parameter;
    exp_avg = T(rule.beta1) * exp_avg + T(rule.one_minus_beta1) * gradient;
    exp_avg_sq = T(rule.beta2) * exp_avg_sq + T(rule.one_minus_beta2) * gradient * gradient;
    T second = exp_avg_sq;
    if (max_exp_avg_sq != nullptr) second = *max_exp_avg_sq = maximum(*max_exp_avg_sq, exp_avg_sq);
    const T denominator = square_root(second) * T(rule.inverse_correction2) + T(rule.eps);
    parameter = T(rule.shrink) * parameter - T(rule.step_size) * exp_avg / denominator;
}

/// Stochastic gradient descent with momentum (Polyak 1964; Sutskever et al. 2013), as torch.optim.SGD.
template <class S>
struct SgdRule {
    S lr, momentum, one_minus_dampening, weight_decay;
    bool nesterov;
    bool first;  // the momentum buffer is new: it starts as the gradient
};

/// `buffer` is null when no momentum is used.
template <class T, class S>
DNNSUITE_HD void sgd(const SgdRule<S>& rule, T& parameter, T gradient, T* buffer) {
    gradient = gradient + T(rule.weight_decay) * parameter;
    if (buffer != nullptr) {
        *buffer = rule.first ? gradient : T(rule.momentum) * *buffer + T(rule.one_minus_dampening) * gradient;
        gradient = rule.nesterov ? gradient + T(rule.momentum) * *buffer : *buffer;
    }
    parameter = parameter - T(rule.lr) * gradient;
}

}  // namespace dnnsuite::fused::DNNSUITE_ISA
