// SPDX-License-Identifier: MIT
// linear and matmul of matrices so small that a library's call is most of its time. Tensors are taken with the strides
// that they have: a stride of 0 for the models is an input that they share. On CUDA torch's batched product does this.
#include <tuple>

#include "fused/cpu/cache.hpp"
#include "fused/cpu/gemm_kernel.hpp"
#include "fused/cpu/parallel.hpp"

namespace dnnsuite::fused {
namespace {

void run(const GemmArguments& args) {
    const bool streams =
        leaves_caches(args.models * args.rows * args.columns * (args.dtype == DType::kFloat64 ? 8 : 4));
    const int64_t tasks = args.models * gemm_tasks_per_model(args);
    const int64_t per_task = args.rows * args.depth * kGemmColumns / 16;
    const auto kernel = DNNSUITE_SELECT(gemm);
    run_tasks(tasks, per_task, gemm_scratch(args),
              [&](int64_t begin, int64_t end, void* scratch) { kernel(args, streams, begin, end, scratch); });
}

GemmArguments product_of(const Checker& check, const Tensor& a, const Tensor& b) {
    GemmArguments args{};
    args.dtype = check.floating(a, "the first matrix");
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

Tensor linear(const Tensor& x, const Tensor& weight, OptionalTensor given_bias, bool relu) {
    const Checker check("linear");
    const OptionalTensor bias = with_packed_rows(given_bias);
    GemmArguments args = linear_arguments(check, x, weight, bias);
    args.relu = relu;
    Tensor y = new_tensor(x, {args.models, args.rows, args.columns});
    args.c = y.data_ptr();
    run(args);
    return y;
}

/// Through the ReLU where there was one: the gradient of x weight + bias, and of the bias itself.
Tensor gradient(const Checker& check, const Tensor& grad, const OptionalTensor& result, void* bias_sums) {
    if (!result.has_value() && bias_sums == nullptr) return grad;
    GemmGradientArguments args{};
    args.dtype = check.floating(grad, "grad");
    args.models = grad.size(0);
    args.rows = grad.size(1);
    args.columns = grad.size(2);
    args.grad = grad.data_ptr();
    args.sums = bias_sums;
    const OptionalTensor kept = packed(result);
    Tensor through = grad;
    if (kept.has_value()) {
        check.same_kind(*kept, "relu_output", grad);
        check.same_shape(*kept, "relu_output", grad);
        args.result = kept->data_ptr();
        through = new_like(grad);
        args.to = through.data_ptr();
    }
    const auto kernel = DNNSUITE_SELECT(gemm_gradient);
    const int64_t per_model = (args.columns + kGemmColumns - 1) / kGemmColumns;
    run_tasks(args.models * per_model, args.rows * kGemmColumns, 1,
              [&](int64_t begin, int64_t end, void*) { kernel(args, begin, end); });
    return through;
}

/// grad^T x, the gradient of the weight; of a single input as x^T grad, which lies the same and fills vectors.
Tensor weight_gradient(GemmArguments args, const Tensor& grad, const Tensor& x) {
    const int64_t outputs = grad.size(2), inputs = x.size(2);
    Tensor dweight = new_tensor(x, {args.models, outputs, inputs});
    const bool turned = inputs == 1 && outputs > 1;
    const Tensor &left = turned ? x : grad, &right = turned ? grad : x;
    args.rows = left.size(2);
    args.columns = right.size(2);
    args.depth = x.size(1);
    args.a = left.data_ptr();
    args.a_model = left.stride(0);
    args.a_row = left.stride(2);
    args.a_column = left.stride(1);
    args.b = right.data_ptr();
    args.b_model = right.stride(0);
    args.b_row = right.stride(1);
    args.b_column = right.stride(2);
    args.c = dweight.data_ptr();
    run(args);
    return dweight;
}

/// A result that is not needed comes as an empty tensor.
std::tuple<Tensor, Tensor, Tensor> linear_backward(const Tensor& grad, const Tensor& x, const Tensor& weight,
                                                   OptionalTensor relu_output, bool needs_x, bool needs_weight,
                                                   bool needs_bias) {
    const Checker check("linear_backward");
    const GemmArguments forward = linear_arguments(check, x, weight, OptionalTensor());
    const Tensor given = packed(grad);
    check.same_kind(given, "grad", x);
    check.shape(given, "grad", {forward.models, forward.rows, forward.columns});
    const Tensor dbias = needs_bias ? new_tensor(x, {forward.models, forward.columns}) : new_tensor(x, {0});
    const Tensor g = gradient(check, given, relu_output, needs_bias ? dbias.data_ptr() : nullptr);
    GemmArguments args = product_of(check, g, weight);
    Tensor dx = needs_x ? new_tensor(x, {forward.models, forward.rows, forward.depth}) : new_tensor(x, {0});
    if (needs_x) {
        args.columns = forward.depth;
        args.b_row = weight.stride(1);
        args.b_column = weight.stride(2);
        args.c = dx.data_ptr();
        run(args);
    }
    return {dx, needs_weight ? weight_gradient(args, g, x) : new_tensor(x, {0}), dbias};
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
