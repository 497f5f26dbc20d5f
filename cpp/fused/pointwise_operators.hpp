// SPDX-License-Identifier: MIT
// dropout, bias_dropout_add, bias_act_dropout: tensors to arguments, the same for both devices. A Backend has
// forward(args, like), backward(args, like) and add_task_sums.
#pragma once

#include <tuple>

#include "fused/tensors.hpp"

namespace dnnsuite::fused {

template <class Backend>
struct PointwiseOperators {
    static constexpr int64_t kFlatColumns = 512;  // without a bias rows mean nothing: mask blocks that stay in L1

    /// With a bias [B, D] rows are the last dimension.
    static Rows rows_of(const Tensor& x, bool has_bias) {
        return cut_rows(x.size(0), elements_per_model(x), has_bias ? x.size(x.dim() - 1) : kFlatColumns);
    }

    static void check_bias(const Checker& check, const Tensor& x, const OptionalTensor& bias) {
        if (!bias.has_value()) return;
        check.at_least(x, "x", 2);
        check.same_kind(*bias, "bias", x);
        check.shape(*bias, "bias", {x.size(0), x.size(x.dim() - 1)});
    }

    static Tensor forward(const char* op, const Tensor& x, const OptionalTensor& bias, Activation activation,
                          const OptionalTensor& residual, const OptionalTensor& p, const OptionalTensor& rng) {
        const Checker check(op);
        check.at_least(x, "x", 1);
        check_bias(check, x, bias);
        if (residual.has_value()) {
            check.same_kind(*residual, "residual", x);
            check.same_shape(*residual, "residual", x);
        }
        const Tensor input = packed(x);
        const OptionalTensor b = packed(bias), r = packed(residual);
        Tensor y = new_like(x);
        PointwiseArguments args{};
        args.dtype = check.floating(x, "x");
        args.activation = activation;
        args.rows = rows_of(x, bias.has_value());
        args.x = input.data_ptr();
        args.bias = pointer(b);
        args.residual = pointer(r);
        args.y = y.data_ptr();
        args.dropout = check.dropout(p, rng, x);
        Backend::forward(args, x);
        return y;
    }

    static Tensor dropout(const Tensor& x, const Tensor& p, const Tensor& rng) {
        return forward("dropout", x, {}, Activation::kNone, {}, p, rng);
    }

    static Tensor bias_dropout_add(const Tensor& x, OptionalTensor bias, const Tensor& residual, OptionalTensor p,
                                   OptionalTensor rng) {
        return forward("bias_dropout_add", x, bias, Activation::kNone, residual, p, rng);
    }

    static Tensor bias_act_dropout(const Tensor& x, OptionalTensor bias, std::string activation, OptionalTensor p,
                                   OptionalTensor rng) {
        const Activation kind = Checker("bias_act_dropout").activation(activation);
        return forward("bias_act_dropout", x, bias, kind, {}, p, rng);
    }

    /// x is needed only for its activation's derivative; the bias's gradient is empty [0] when there is no bias.
    static std::tuple<Tensor, Tensor> bias_act_dropout_backward(const Tensor& grad, OptionalTensor x,
                                                                OptionalTensor bias, std::string activation,
                                                                OptionalTensor p, OptionalTensor rng) {
        const Checker check("bias_act_dropout_backward");
        const Activation kind = check.activation(activation);
        check.at_least(grad, "grad", 1);
        check_bias(check, grad, bias);
        if (kind != Activation::kNone) {
            STD_TORCH_CHECK(x.has_value(), check.op(), ": x is needed for activation '", activation, "'");
            check.same_kind(*x, "x", grad);
            check.same_shape(*x, "x", grad);
        }
        const Tensor g = packed(grad);
        const OptionalTensor input = packed(x), b = packed(bias);
        Tensor dx = new_like(grad);
        PointwiseArguments args{};
        args.dtype = check.floating(grad, "grad");
        args.activation = kind;
        args.rows = rows_of(grad, bias.has_value());
        args.x = pointer(input);
        args.bias = pointer(b);
        args.grad = g.data_ptr();
        args.y = dx.data_ptr();
        args.dropout = check.dropout(p, rng, grad);
        if (!bias.has_value()) {
            Backend::backward(args, grad);
            return {dx, new_tensor(grad, {0})};
        }
        const TaskSums sums(grad, args.rows);
        args.bias_sums = sums.parts();
        Backend::backward(args, grad);
        return {dx, sums.template total<Backend>(args.dtype)};
    }

    static void implement(torch::stable::detail::StableLibrary& m) {
        m.impl("dropout", TORCH_BOX(&dropout));
        m.impl("bias_dropout_add", TORCH_BOX(&bias_dropout_add));
        m.impl("bias_act_dropout", TORCH_BOX(&bias_act_dropout));
        m.impl("bias_act_dropout_backward", TORCH_BOX(&bias_act_dropout_backward));
    }
};

}  // namespace dnnsuite::fused
