// SPDX-License-Identifier: MIT
// dropout, bias_dropout_add, bias_act_dropout: tensors to cpu/pointwise_kernel.
#include "fused/cpu/pointwise_kernel.hpp"

#include <tuple>

#include "fused/cpu/parallel.hpp"

namespace dnnsuite::fused {
namespace {

constexpr int64_t kFlatColumns = 4096;  // without a bias rows mean nothing: any multiple of a mask block will do

/// With a bias [B, D] (or its gradient wanted) rows are the last dimension.
Rows rows_of(const Tensor& x, bool has_bias) {
    return cut_rows(x.size(0), elements_per_model(x), has_bias ? x.size(x.dim() - 1) : kFlatColumns);
}

void check_bias(const Checker& check, const Tensor& x, const OptionalTensor& bias) {
    if (!bias.has_value()) return;
    check.at_least(x, "x", 2);
    check.same_kind(*bias, "bias", x);
    check.shape(*bias, "bias", {x.size(0), x.size(x.dim() - 1)});
}

void run_forward(const PointwiseArguments& args) {
    const auto kernel = DNNSUITE_SELECT(pointwise_forward);
    run_tasks(args.rows.tasks(), args.rows.rows_per_task * args.rows.columns, pointwise_scratch(args.rows.columns),
              [&](int64_t begin, int64_t end, void* scratch) { kernel(args, begin, end, scratch); });
}

Tensor forward(const char* op, const Tensor& x, const OptionalTensor& bias, Activation activation,
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
    PointwiseArguments args{check.floating(x, "x"), activation, rows_of(x, bias.has_value()), input.data_ptr(),
                            pointer(b), pointer(r), nullptr, y.data_ptr(), nullptr,
                            check.dropout(p, rng, x.size(0))};
    run_forward(args);
    return y;
}

Tensor dropout(const Tensor& x, const Tensor& p, const Tensor& rng) {
    return forward("dropout", x, {}, Activation::kNone, {}, p, rng);
}

Tensor bias_dropout_add(const Tensor& x, OptionalTensor bias, const Tensor& residual, OptionalTensor p,
                        OptionalTensor rng) {
    return forward("bias_dropout_add", x, bias, Activation::kNone, residual, p, rng);
}

Tensor bias_act_dropout(const Tensor& x, OptionalTensor bias, std::string activation, OptionalTensor p,
                        OptionalTensor rng) {
    const Activation kind = Checker("bias_act_dropout").activation(activation);
    return forward("bias_act_dropout", x, bias, kind, {}, p, rng);
}

/// x is needed only for its activation's derivative; the bias's gradient [B, D] is empty [0] when there is none.
std::tuple<Tensor, Tensor> bias_act_dropout_backward(const Tensor& grad, OptionalTensor x, OptionalTensor bias,
                                                     std::string activation, OptionalTensor p, OptionalTensor rng) {
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
    PointwiseArguments args{check.floating(grad, "grad"), kind, rows_of(grad, bias.has_value()), pointer(input),
                            pointer(b), nullptr, g.data_ptr(), dx.data_ptr(), nullptr,
                            check.dropout(p, rng, grad.size(0))};
    const auto kernel = DNNSUITE_SELECT(pointwise_backward);
    const auto run = [&] {
        run_tasks(args.rows.tasks(), args.rows.rows_per_task * args.rows.columns,
                  pointwise_scratch(args.rows.columns),
                  [&](int64_t begin, int64_t end, void* scratch) { kernel(args, begin, end, scratch); });
    };
    if (!bias.has_value()) {
        run();
        return {dx, new_tensor(grad, {0})};
    }
    const TaskSums sums(grad, args.rows);
    args.bias_sums = sums.parts();
    run();
    return {dx, sums.total()};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) {
    m.impl("dropout", TORCH_BOX(&dropout));
    m.impl("bias_dropout_add", TORCH_BOX(&bias_dropout_add));
    m.impl("bias_act_dropout", TORCH_BOX(&bias_act_dropout));
    m.impl("bias_act_dropout_backward", TORCH_BOX(&bias_act_dropout_backward));
}

}  // namespace dnnsuite::fused
