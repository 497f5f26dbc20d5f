// SPDX-License-Identifier: MIT
// The optimizers' operators, the same for both devices but for Step::run(args): tensors to arguments.
#pragma once

#include "fused/optimizer_checks.hpp"

namespace dnnsuite::fused {

template <class Step>
struct OptimizerOperators {
    static void adadelta(TensorList params, TensorList grads, TensorList square_avgs, TensorList acc_deltas,
                         const Tensor& lr, const Tensor& rho, const Tensor& eps, const Tensor& weight_decay) {
        OptimizerInputs in("adadelta_", Optimizer::kAdadelta, params);
        in.add(grads, "grads", 1);
        in.add(square_avgs, "square_avgs", 2);
        in.add(acc_deltas, "acc_deltas", 3);
        in.hyper(lr, "lr", 0);
        in.hyper(rho, "rho", 1);
        in.hyper(eps, "eps", 2);
        in.hyper(weight_decay, "weight_decay", 3);
        if (!params.empty()) Step::run(in.args(), params[0]);
    }

    static void adam(TensorList params, TensorList grads, TensorList exp_avgs, TensorList exp_avg_sqs,
                     TensorList max_exp_avg_sqs, const Tensor& step, const Tensor& lr, const Tensor& beta1,
                     const Tensor& beta2, const Tensor& eps, const Tensor& weight_decay, bool decoupled) {
        OptimizerInputs in("adam_", Optimizer::kAdam, params);
        in.add(grads, "grads", 1);
        in.add(exp_avgs, "exp_avgs", 2);
        in.add(exp_avg_sqs, "exp_avg_sqs", 3);
        if (!max_exp_avg_sqs.empty()) in.add(max_exp_avg_sqs, "max_exp_avg_sqs", 4);
        in.hyper(step, "step", 0);
        in.hyper(lr, "lr", 1);
        in.hyper(beta1, "beta1", 2);
        in.hyper(beta2, "beta2", 3);
        in.hyper(eps, "eps", 4);
        in.hyper(weight_decay, "weight_decay", 5);
        in.args().decoupled = decoupled;
        in.args().amsgrad = !max_exp_avg_sqs.empty();
        if (!params.empty()) Step::run(in.args(), params[0]);
    }

    static void sgd(TensorList params, TensorList grads, TensorList momentum_buffers, const Tensor& lr,
                    const Tensor& momentum, const Tensor& dampening, const Tensor& weight_decay, bool nesterov,
                    bool first) {
        OptimizerInputs in("sgd_", Optimizer::kSgd, params);
        in.add(grads, "grads", 1);
        if (!momentum_buffers.empty()) in.add(momentum_buffers, "momentum_buffers", 2);
        in.hyper(lr, "lr", 0);
        in.hyper(momentum, "momentum", 1);
        in.hyper(dampening, "dampening", 2);
        in.hyper(weight_decay, "weight_decay", 3);
        in.args().has_momentum = !momentum_buffers.empty();
        in.args().nesterov = nesterov;
        in.args().first = first;
        if (!params.empty()) Step::run(in.args(), params[0]);
    }

    static void implement(torch::stable::detail::StableLibrary& m) {
        m.impl("adadelta_", TORCH_BOX(&adadelta));
        m.impl("adam_", TORCH_BOX(&adam));
        m.impl("sgd_", TORCH_BOX(&sgd));
    }
};

}  // namespace dnnsuite::fused
