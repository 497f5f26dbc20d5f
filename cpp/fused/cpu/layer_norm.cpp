// SPDX-License-Identifier: MIT
// layer_norm, bias_dropout_add_layer_norm: tensors to cpu/layer_norm_kernel.
#include "fused/cpu/layer_norm_kernel.hpp"

#include <tuple>

#include "fused/cpu/parallel.hpp"

namespace dnnsuite::fused {
namespace {

Rows rows_of(const Checker& check, const Tensor& x) {
    check.at_least(x, "x", 2);
    const int64_t columns = x.size(x.dim() - 1);
    STD_TORCH_CHECK(columns > 0, check.op(), ": the last dimension of x must not be 0, shape is ", shape_text(x));
    return cut_rows(x.size(0), elements_per_model(x), columns);
}

void check_parameter(const Checker& check, const OptionalTensor& t, const char* name, const Tensor& x) {
    if (!t.has_value()) return;
    check.same_kind(*t, name, x);
    check.shape(*t, name, {x.size(0), x.size(x.dim() - 1)});
}

template <class Kernel>
void run(const LayerNormArguments& args, const Kernel& kernel) {
    run_tasks(args.rows.tasks(), args.rows.rows_per_task * args.rows.columns, layer_norm_scratch(args.rows.columns),
              [&](int64_t begin, int64_t end, void* scratch) { kernel(args, begin, end, scratch); });
}

struct Inputs {
    Tensor x;
    OptionalTensor bias, residual, weight, norm_bias, grad;
    LayerNormArguments args{};
};

/// Checks everything, makes it contiguous and fills in what forward and backward have in common.
Inputs prepare(const Checker& check, const Tensor& x, const OptionalTensor& bias, const OptionalTensor& residual,
               const OptionalTensor& p, const OptionalTensor& rng, const OptionalTensor& weight,
               const OptionalTensor& norm_bias, const OptionalTensor& grad, double eps) {
    const Rows rows = rows_of(check, x);
    check_parameter(check, bias, "bias", x);
    check_parameter(check, weight, "weight", x);
    check_parameter(check, norm_bias, "norm_bias", x);
    for (const auto& [t, name] : {std::pair(&residual, "residual"), std::pair(&grad, "grad")}) {
        if (!t->has_value()) continue;
        check.same_kind(**t, name, x);
        check.same_shape(**t, name, x);
    }
    Inputs in{packed(x), packed(bias), packed(residual), packed(weight), packed(norm_bias),
              packed(grad)};
    LayerNormArguments& args = in.args;
    args.dtype = check.floating(x, "x");
    args.rows = rows;
    args.eps = eps;
    args.x = in.x.data_ptr();
    args.bias = pointer(in.bias);
    args.residual = pointer(in.residual);
    args.weight = pointer(in.weight);
    args.norm_bias = pointer(in.norm_bias);
    args.grad = pointer(in.grad);
    args.dropout = check.dropout(p, rng, x.size(0));
    return in;
}

Tensor forward(Inputs in) {
    Tensor y = new_like(in.x);
    in.args.y = y.data_ptr();
    run(in.args, DNNSUITE_SELECT(layer_norm_forward));
    return y;
}

Tensor layer_norm(const Tensor& x, OptionalTensor weight, OptionalTensor bias, double eps) {
    return forward(prepare(Checker("layer_norm"), x, {}, {}, {}, {}, weight, bias, {}, eps));
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const Tensor& grad, const Tensor& x, OptionalTensor weight,
                                                       double eps) {
    Inputs in = prepare(Checker("layer_norm_backward"), x, {}, {}, {}, {}, weight, {}, grad, eps);
    Tensor dx = new_like(x);
    const TaskSums weight_sums(x, in.args.rows), bias_sums(x, in.args.rows);
    in.args.dx = dx.data_ptr();
    in.args.weight_sums = weight_sums.parts();
    in.args.norm_bias_sums = bias_sums.parts();
    run(in.args, DNNSUITE_SELECT(layer_norm_backward));
    return {dx, weight_sums.total(), bias_sums.total()};
}

Tensor bias_dropout_add_layer_norm(const Tensor& x, OptionalTensor bias, const Tensor& residual, OptionalTensor p,
                                   OptionalTensor rng, OptionalTensor weight, OptionalTensor norm_bias, double eps) {
    return forward(prepare(Checker("bias_dropout_add_layer_norm"), x, bias, residual, p, rng, weight, norm_bias, {},
                           eps));
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> bias_dropout_add_layer_norm_backward(
    const Tensor& grad, const Tensor& x, OptionalTensor bias, const Tensor& residual, OptionalTensor p,
    OptionalTensor rng, OptionalTensor weight, double eps) {
    const Checker check("bias_dropout_add_layer_norm_backward");
    Inputs in = prepare(check, x, bias, residual, p, rng, weight, {}, grad, eps);
    Tensor dx = new_like(x), dresidual = new_like(x);
    const TaskSums bias_sums(x, in.args.rows), weight_sums(x, in.args.rows), norm_bias_sums(x, in.args.rows);
    in.args.dx = dx.data_ptr();
    in.args.dresidual = dresidual.data_ptr();
    in.args.bias_sums = bias_sums.parts();
    in.args.weight_sums = weight_sums.parts();
    in.args.norm_bias_sums = norm_bias_sums.parts();
    run(in.args, DNNSUITE_SELECT(layer_norm_backward));
    return {dx, dresidual, bias_sums.total(), weight_sums.total(), norm_bias_sums.total()};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) {
    m.impl("layer_norm", TORCH_BOX(&layer_norm));
    m.impl("layer_norm_backward", TORCH_BOX(&layer_norm_backward));
    m.impl("bias_dropout_add_layer_norm", TORCH_BOX(&bias_dropout_add_layer_norm));
    m.impl("bias_dropout_add_layer_norm_backward", TORCH_BOX(&bias_dropout_add_layer_norm_backward));
}

}  // namespace dnnsuite::fused
