// SPDX-License-Identifier: MIT
// linear and matmul of matrices so small that a library's call is most of its time. Tensors are taken with the strides
// that they have: a stride of 0 for the models is an input that they share. On CUDA torch's batched product does this.
#include <tuple>

#include "fused/cpu/gemm_kernel.hpp"
#include "fused/cpu/parallel.hpp"

namespace dnnsuite::fused {
namespace {

void run(const GemmArguments& args) {
    const int64_t tasks = args.models * gemm_tasks_per_model(args);
    const int64_t per_task = args.rows * args.depth * kGemmColumns / 16;
    const auto kernel = DNNSUITE_SELECT(gemm);
    run_tasks(tasks, per_task, gemm_scratch(args),
              [&](int64_t begin, int64_t end, void* scratch) { kernel(args, begin, end, scratch); });
}

GemmArguments product_of(const Checker& check, const Tensor& a, const Tensor& b) {
    GemmArguments args{};
    args.dtype = check.floating(a, "the first matrix");
    args.activation = Activation::kNone;
    args.models = a.size(0);
    args.rows = a.size(1);
    args.depth = a.size(2);
    args.a = a.data_ptr();
    args.a_model = a.stride(0);
    args.a_row = a.stride(1);
    args.a_column = a.stride(2);
    args.b = b.data_ptr();
    args.b_model = b.stride(0);
    return args;
}

void check_cube(const Checker& check, const Tensor& t, const char* name) {
    STD_TORCH_CHECK(t.dim() == 3, check.op(), ": ", name, " must have three dimensions, the first of them the models, ",
                    "not shape ", shape_text(t));
}

/// x [B, R, I], weight [B, O, I], bias [B, O].
GemmArguments linear_arguments(const Checker& check, const Tensor& x, const Tensor& weight,
                               const OptionalTensor& bias) {
    check_cube(check, x, "x");
    check_cube(check, weight, "weight");
    check.same_kind(weight, "weight", x);
    check.shape(weight, "weight", {x.size(0), weight.size(1), x.size(2)});
    GemmArguments args = product_of(check, x, weight);
    args.columns = weight.size(1);
    args.b_row = weight.stride(2);
    args.b_column = weight.stride(1);
    if (bias.has_value()) {
        check.same_kind(*bias, "bias", x);
        check.shape(*bias, "bias", {args.models, args.columns});
        args.bias = bias->data_ptr();
        args.bias_model = bias->stride(0);
    }
    return args;
}

OptionalTensor with_packed_rows(const OptionalTensor& t) {
    return t.has_value() && t->dim() == 2 && t->size(1) > 1 && t->stride(1) != 1 ? packed(t) : t;
}

/// The result, and what was before the activation where its derivative needs that (else empty).
std::tuple<Tensor, Tensor> linear(const Tensor& x, const Tensor& weight, OptionalTensor given_bias,
                                  std::string activation) {
    const Checker check("linear");
    const OptionalTensor bias = with_packed_rows(given_bias);
    GemmArguments args = linear_arguments(check, x, weight, bias);
    args.activation = check.activation(activation);
    const Tensor y = new_tensor(x, {args.models, args.rows, args.columns});
    const Tensor before = args.activation == Activation::kGelu ? new_like(y) : new_tensor(x, {0});
    args.c = y.data_ptr();
    if (args.activation == Activation::kGelu) args.before = before.data_ptr();
    run(args);
    return {y, before};
}

/// Through the activation: the gradient of x weight + bias, and of the bias itself.
Tensor activation_backward(const Checker& check, const Tensor& grad, const OptionalTensor& saved, Activation activation,
                           void* bias_sums) {
    GemmGradientArguments args{};
    args.dtype = check.floating(grad, "grad");
    args.activation = activation;
    args.models = grad.size(0);
    args.rows = grad.size(1);
    args.columns = grad.size(2);
    args.grad = grad.data_ptr();
    args.sums = bias_sums;
    const OptionalTensor kept = packed(saved);
    Tensor through = grad;
    if (activation != Activation::kNone) {
        STD_TORCH_CHECK(kept.has_value(), check.op(), ": an activation needs what the forward pass saved");
        check.same_kind(*kept, "saved", grad);
        check.same_shape(*kept, "saved", grad);
        args.saved = kept->data_ptr();
        through = new_like(grad);
        args.to = through.data_ptr();
    }
    if (activation == Activation::kNone && bias_sums == nullptr) return through;
    const auto kernel = DNNSUITE_SELECT(gemm_gradient);
    const int64_t per_model = (args.columns + kGemmColumns - 1) / kGemmColumns;
    run_tasks(args.models * per_model, args.rows * kGemmColumns, 1,
              [&](int64_t begin, int64_t end, void*) { kernel(args, begin, end); });
    return through;
}

std::tuple<Tensor, Tensor, Tensor> linear_backward(const Tensor& grad, const Tensor& x, const Tensor& weight,
                                                   OptionalTensor saved, std::string activation, bool needs_x,
                                                   bool needs_weight, bool needs_bias) {
    const Checker check("linear_backward");
    const GemmArguments forward = linear_arguments(check, x, weight, OptionalTensor());
    const int64_t models = forward.models, rows = forward.rows, outputs = forward.columns, inputs = forward.depth;
    const Tensor given = packed(grad);
    check.same_kind(given, "grad", x);
    check.shape(given, "grad", {models, rows, outputs});
    const Tensor empty = new_tensor(x, {0});
    Tensor dx = empty, dweight = empty, dbias = empty;
    if (needs_bias) dbias = new_tensor(x, {models, outputs});
    const Tensor g = activation_backward(check, given, saved, check.activation(activation),
                                         needs_bias ? dbias.data_ptr() : nullptr);
    GemmArguments args = product_of(check, g, weight);
    args.columns = inputs;
    if (needs_x) {
        dx = new_tensor(x, {models, rows, inputs});
        args.b_row = weight.stride(1);
        args.b_column = weight.stride(2);
        args.c = dx.data_ptr();
        run(args);
    }
    if (needs_weight) {
        dweight = new_tensor(x, {models, outputs, inputs});
        args.rows = outputs;
        args.depth = rows;
        args.a_row = 1;
        args.a_column = outputs;
        args.b = x.data_ptr();
        args.b_model = x.stride(0);
        args.b_row = x.stride(1);
        args.b_column = x.stride(2);
        args.c = dweight.data_ptr();
        run(args);
    }
    return {dx, dweight, dbias};
}

Tensor matmul(const Tensor& a, const Tensor& b) {
    const Checker check("matmul");
    check_cube(check, a, "a");
    check_cube(check, b, "b");
    check.same_kind(b, "b", a);
    check.shape(b, "b", {a.size(0), a.size(2), b.size(2)});
    GemmArguments args = product_of(check, a, b);
    args.columns = b.size(2);
    args.b_row = b.stride(1);
    args.b_column = b.stride(2);
    Tensor c = new_tensor(a, {args.models, args.rows, args.columns});
    args.c = c.data_ptr();
    run(args);
    return c;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) {
    m.impl("linear", TORCH_BOX(&linear));
    m.impl("linear_backward", TORCH_BOX(&linear_backward));
    m.impl("matmul", TORCH_BOX(&matmul));
}

}  // namespace dnnsuite::fused
