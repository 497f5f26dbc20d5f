// SPDX-License-Identifier: MIT
// layer_norm, bias_dropout_add_layer_norm: tensors to arguments, the same for both devices. A Backend has
// forward(args, like), backward(args, like) and add_task_sums.
#pragma once

#include <tuple>

#include "fused/tensors.hpp"

namespace dnnsuite::fused {

/// Everything an operator of this family may be given, made contiguous, and the arguments it becomes.
struct LayerNormInputs {
    Tensor x;
    OptionalTensor bias, residual, weight, norm_bias, grad;
    LayerNormArguments args{};

    LayerNormInputs(const Checker& check, const Tensor& x_in, const OptionalTensor& bias_in,
                    const OptionalTensor& residual_in, const OptionalTensor& p, const OptionalTensor& rng,
                    const OptionalTensor& weight_in, const OptionalTensor& norm_bias_in, const OptionalTensor& grad_in,
                    double eps)
        : x(packed_or_shared(x_in)) {
        check.at_least(x, "x", 2);
        const int64_t columns = x.size(x.dim() - 1);
        STD_TORCH_CHECK(columns > 0, check.op(), ": the last dimension of x must not be 0, shape is ", shape_text(x));
        args.dtype = check.floating(x, "x");
        args.rows = cut_rows(x.size(0), elements_per_model(x), columns);
        args.eps = eps;
        args.x = x.data_ptr();
        args.shared_x = !x.is_cuda() && is_shared(x);
        args.bias = take(check, bias_in, "bias", true, bias);
        args.residual = take(check, residual_in, "residual", false, residual);
        args.weight = take(check, weight_in, "weight", true, weight);
        args.norm_bias = take(check, norm_bias_in, "norm_bias", true, norm_bias);
        args.grad = take(check, grad_in, "grad", false, grad);
        args.dropout = check.dropout(p, rng, x);
    }

  private:
    /// Checks an optional tensor, a parameter [B, D] or one like x, and keeps it contiguous.
    const void* take(const Checker& check, const OptionalTensor& in, const char* name, bool parameter,
                     OptionalTensor& kept) {
        if (!in.has_value()) return nullptr;
        check.same_kind(*in, name, x);
        if (parameter)
            check.shape(*in, name, {x.size(0), x.size(x.dim() - 1)});
        else
            check.same_shape(*in, name, x);
        kept = packed(in);
        return kept->data_ptr();
    }
};

template <class Backend>
struct LayerNormOperators {
    static Tensor forward(LayerNormInputs in) {
        Tensor y = new_like(in.x);
        in.args.y = y.data_ptr();
        Backend::forward(in.args, in.x);
        return y;
    }

    static Tensor layer_norm(const Tensor& x, OptionalTensor weight, OptionalTensor bias, double eps) {
        return forward({Checker("layer_norm"), x, {}, {}, {}, {}, weight, bias, {}, eps});
    }

    static std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const Tensor& grad, const Tensor& x,
                                                                  OptionalTensor weight, double eps) {
        LayerNormInputs in(Checker("layer_norm_backward"), x, {}, {}, {}, {}, weight, {}, grad, eps);
        Tensor dx = new_like(x);
        const TaskSums weight_sums(x, in.args.rows), bias_sums(x, in.args.rows);
        in.args.dx = dx.data_ptr();
        in.args.weight_sums = weight_sums.parts();
        in.args.norm_bias_sums = bias_sums.parts();
        Backend::backward(in.args, x);
        const DType dtype = in.args.dtype;
        return {dx, weight_sums.total<Backend>(dtype), bias_sums.total<Backend>(dtype)};
    }

    /// (dweight, dbias), where x needs no gradient.
    static std::tuple<Tensor, Tensor> layer_norm_backward_parameters(const Tensor& grad, const Tensor& x, double eps) {
        LayerNormInputs in(Checker("layer_norm_backward_parameters"), x, {}, {}, {}, {}, {}, {}, grad, eps);
        const TaskSums weight_sums(x, in.args.rows), bias_sums(x, in.args.rows);
        in.args.weight_sums = weight_sums.parts();
        in.args.norm_bias_sums = bias_sums.parts();
        Backend::backward(in.args, x);
        const DType dtype = in.args.dtype;
        return {weight_sums.total<Backend>(dtype), bias_sums.total<Backend>(dtype)};
    }

    static Tensor bias_dropout_add_layer_norm(const Tensor& x, OptionalTensor bias, const Tensor& residual,
                                              OptionalTensor p, OptionalTensor rng, OptionalTensor weight,
                                              OptionalTensor norm_bias, double eps) {
        const Checker check("bias_dropout_add_layer_norm");
        return forward({check, x, bias, residual, p, rng, weight, norm_bias, {}, eps});
    }

    static std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> bias_dropout_add_layer_norm_backward(
        const Tensor& grad, const Tensor& x, OptionalTensor bias, const Tensor& residual, OptionalTensor p,
        OptionalTensor rng, OptionalTensor weight, double eps) {
        const Checker check("bias_dropout_add_layer_norm_backward");
        LayerNormInputs in(check, x, bias, residual, p, rng, weight, {}, grad, eps);
        Tensor dx = new_like(x), dresidual = new_like(x);
        const TaskSums bias_sums(x, in.args.rows), weight_sums(x, in.args.rows), norm_bias_sums(x, in.args.rows);
        in.args.dx = dx.data_ptr();
        in.args.dresidual = dresidual.data_ptr();
        in.args.bias_sums = bias_sums.parts();
        in.args.weight_sums = weight_sums.parts();
        in.args.norm_bias_sums = norm_bias_sums.parts();
        Backend::backward(in.args, x);
        const DType dtype = in.args.dtype;
        return {dx, dresidual, bias_sums.total<Backend>(dtype), weight_sums.total<Backend>(dtype),
                norm_bias_sums.total<Backend>(dtype)};
    }

    static void implement(torch::stable::detail::StableLibrary& m) {
        m.impl("layer_norm", TORCH_BOX(&layer_norm));
        m.impl("layer_norm_backward", TORCH_BOX(&layer_norm_backward));
        m.impl("bias_dropout_add_layer_norm", TORCH_BOX(&bias_dropout_add_layer_norm));
        m.impl("bias_dropout_add_layer_norm_backward", TORCH_BOX(&bias_dropout_add_layer_norm_backward));
    }
};

}  // namespace dnnsuite::fused
