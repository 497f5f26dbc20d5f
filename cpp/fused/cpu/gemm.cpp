// SPDX-License-Identifier: MIT
// linear and matmul of matrices so small that a library's call is most of its time. Tensors are taken with the strides
// that they have: a stride of 0 for the models is an input that they share. On CUDA torch's batched product does this.
#include <optional>
#include <tuple>

#include "fused/cpu/cache.hpp"
#include "fused/cpu/gemm_kernel.hpp"
#include "fused/cpu/parallel.hpp"

namespace dnnsuite::fused {
namespace {

int64_t element_bytes(DType dtype) { return dtype == DType::kFloat64 ? 8 : 4; }

/// The element `numbers` behind p; null stays null.
template <class Pointer>
Pointer moved(DType dtype, Pointer p, int64_t numbers) {
    using Bytes = std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const char*, char*>;
    return p == nullptr ? p : static_cast<Bytes>(p) + numbers * element_bytes(dtype);
}

/// The products of some of the models.
void run(const GemmArguments& all, int64_t first, int64_t models) {
    const bool streams = leaves_caches(all.models * all.rows * all.columns * element_bytes(all.dtype));
    GemmArguments args = all;
    args.models = models;
    args.a = moved(all.dtype, all.a, first * all.a_model);
    args.b = moved(all.dtype, all.b, first * all.b_model);
    args.bias = moved(all.dtype, all.bias, first * all.bias_model);
    args.c = moved(all.dtype, all.c, first * all.rows * all.columns);
    const int64_t per_task = args.rows * args.depth * args.parts * kGemmColumns / 16;
    const auto kernel = DNNSUITE_SELECT(gemm);
    run_tasks(models * gemm_tasks_per_model(args), per_task, gemm_scratch(args),
              [&](int64_t begin, int64_t end, void* scratch) { kernel(args, streams, begin, end, scratch); });
}

void run(const GemmArguments& args) { run(args, 0, args.models); }

/// The left factor of a product, with its rows and its depth in these dimensions of `t`.
void set_left(GemmArguments& args, const Tensor& t, int64_t rows, int64_t depth) {
    args.models = t.size(0);
    args.rows = t.size(rows);
    args.depth = t.size(depth);
    args.a = t.data_ptr();
    args.a_model = t.stride(0);
    args.a_row = t.stride(rows);
    args.a_column = t.stride(depth);
}

/// The right one, likewise.
void set_right(GemmArguments& args, const Tensor& t, int64_t depth, int64_t columns) {
    args.columns = t.size(columns);
    args.b = t.data_ptr();
    args.b_model = t.stride(0);
    args.b_row = t.stride(depth);
    args.b_column = t.stride(columns);
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
    GemmArguments args{};
    args.dtype = check.floating(x, "the first matrix");
    set_left(args, x, 1, 2);
    set_right(args, weight, 2, 1);
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
struct Through {
    Tensor grad;
    OptionalTensor result;
    std::optional<GemmGradientArguments> args;  // none: nothing is to be done

    Through(const Checker& check, const Tensor& given, const OptionalTensor& relu_output, void* bias_sums)
        : grad(given), result(packed(relu_output)) {
        if (!result.has_value() && bias_sums == nullptr) return;
        args.emplace();
        args->dtype = check.floating(given, "grad");
        args->models = given.size(0);
        args->rows = given.size(1);
        args->columns = given.size(2);
        args->grad = given.data_ptr();
        args->sums = bias_sums;
        if (!result.has_value()) return;
        check.same_kind(*result, "relu_output", given);
        check.same_shape(*result, "relu_output", given);
        args->result = result->data_ptr();
        grad = new_like(given);
        args->to = grad.data_ptr();
    }

    void run(int64_t first, int64_t models) const {
        if (!args.has_value()) return;
        GemmGradientArguments some = *args;
        const int64_t from = first * some.rows * some.columns;
        some.models = models;
        some.grad = moved(some.dtype, some.grad, from);
        some.result = moved(some.dtype, some.result, from);
        some.to = moved(some.dtype, some.to, from);
        some.sums = moved(some.dtype, some.sums, first * some.columns);
        const auto kernel = DNNSUITE_SELECT(gemm_gradient);
        const int64_t per_model = (some.columns + kGemmColumns - 1) / kGemmColumns;
        run_tasks(models * per_model, some.rows * kGemmColumns, 1,
                  [&](int64_t begin, int64_t end, void*) { kernel(some, begin, end); });
    }
};

/// grad weight.
struct InputGradient {
    GemmArguments args{};
    Tensor dx;

    InputGradient(const GemmArguments& forward, const Tensor& grad, const Tensor& weight)
        : dx(new_tensor(grad, {forward.models, forward.rows, forward.depth})) {
        args.dtype = forward.dtype;
        set_left(args, grad, 1, 2);
        set_right(args, weight, 1, 2);
        args.c = dx.data_ptr();
    }
};

template <class T>
void turn(const Tensor& from, const Tensor& to, int64_t first, int64_t models) {
    const int64_t rows = from.size(1), columns = from.size(2);
    const T* source = static_cast<const T*>(from.data_ptr()) + first * rows * columns;
    T* target = static_cast<T*>(to.data_ptr()) + first * rows * columns;
    for (int64_t m = 0; m < models; ++m, source += rows * columns, target += rows * columns)
        for (int64_t c = 0; c < columns; ++c)
            for (int64_t r = 0; r < rows; ++r) target[c * rows + r] = source[r * columns + c];
}

/// grad^T x; of few inputs x^T grad, which fills the vectors, and is turned.
struct WeightGradient {
    GemmArguments args{};
    Tensor dweight, kept;  // kept: what is to be turned
    bool turned;

    WeightGradient(const GemmArguments& forward, const Tensor& grad, const Tensor& x)
        : dweight(new_tensor(x, {forward.models, forward.columns, forward.depth})), kept(dweight),
          turned(pays(forward.columns, forward.depth, forward.rows)) {
        if (turned && forward.depth > 1) kept = new_tensor(x, {forward.models, forward.depth, forward.columns});
        const Tensor &left = turned ? x : grad, &right = turned ? grad : x;
        args.dtype = forward.dtype;
        set_left(args, left, 2, 1);
        set_right(args, right, 1, 2);
        args.c = kept.data_ptr();
    }

    /// Vectors of the product, and numbers to turn, are fewer.
    static bool pays(int64_t outputs, int64_t inputs, int64_t rows) {
        constexpr int64_t kVector = 16;
        if (inputs == 1) return outputs > 1;
        const int64_t plain = outputs * ((inputs + kVector - 1) / kVector);
        return rows >= 4 * kVector && 2 * inputs * ((outputs + kVector - 1) / kVector) <= plain;
    }

    void finish(int64_t first, int64_t models) const {
        if (!turned || args.rows == 1) return;
        args.dtype == DType::kFloat64 ? turn<double>(kept, dweight, first, models)
                                      : turn<float>(kept, dweight, first, models);
    }
};

/// Models that go through all passes together: one at a time if a pass would find nothing in the caches of what the one
/// before has read of all models.
int64_t models_at_once(const GemmArguments& forward) {
    constexpr int64_t kNearBytes = 512 * 1024;
    const int64_t numbers = forward.models * forward.rows * forward.columns;
    const bool apart = torch::stable::get_num_threads() == 1 && numbers * element_bytes(forward.dtype) > kNearBytes;
    return apart ? 1 : forward.models;
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
    const Through through(check, given, relu_output, needs_bias ? dbias.data_ptr() : nullptr);
    std::optional<InputGradient> of_x;
    std::optional<WeightGradient> of_weight;
    if (needs_x) of_x.emplace(forward, through.grad, weight);
    if (needs_weight) of_weight.emplace(forward, through.grad, x);
    const int64_t step = models_at_once(forward);
    for (int64_t last = forward.models; last > 0; last -= step) {
        through.run(last - step, step);
        if (needs_x) run(of_x->args, last - step, step);
        if (!needs_weight) continue;
        run(of_weight->args, last - step, step);
        of_weight->finish(last - step, step);
    }
    return {needs_x ? of_x->dx : new_tensor(x, {0}), needs_weight ? of_weight->dweight : new_tensor(x, {0}), dbias};
}

/// weight [B, O, I] times each sample of x [B, N, I, P], plus bias [B, O]: [B, N, O, P].
Tensor pixel_products(const Tensor& x, const Tensor& weight, OptionalTensor given_bias) {
    const Checker check("pixel_products");
    check_cube(check, weight, "weight");
    check.same_kind(x, "x", weight);
    STD_TORCH_CHECK(x.dim() == 4, check.op(), ": x must be [B, N, I, P], not shape ", shape_text(x));
    check.shape(x, "x", {weight.size(0), x.size(1), weight.size(2), x.size(3)});
    GemmArguments args{};
    args.dtype = check.floating(x, "x");
    set_left(args, weight, 1, 2);
    set_right(args, x, 2, 3);
    args.a_model = 0;
    args.b_model = x.stride(1);
    const int64_t models = x.size(0), samples = args.models = x.size(1);
    const OptionalTensor bias = packed(given_bias);
    if (bias.has_value()) {
        check.same_kind(*bias, "bias", x);
        check.shape(*bias, "bias", {models, args.rows});
        args.bias_of_rows = true;
    }
    Tensor y = new_tensor(x, {models, samples, args.rows, args.columns});
    for (int64_t model = 0; model < models; ++model) {
        args.a = moved(args.dtype, weight.data_ptr(), model * weight.stride(0));
        args.b = moved(args.dtype, x.data_ptr(), model * x.stride(0));
        if (bias.has_value()) args.bias = moved(args.dtype, bias->data_ptr(), model * args.rows);
        args.c = moved(args.dtype, y.data_ptr(), model * samples * args.rows * args.columns);
        run(args);
    }
    return y;
}

/// The sums over S of the products of a [B, S, M, K] and b [B, S, K, N]: c [B, M, N].
Tensor sum_of_products(const Tensor& a, const Tensor& b) {
    const Checker check("sum_of_products");
    STD_TORCH_CHECK(a.dim() == 4 && a.size(1) > 0, check.op(), ": a must be [B, S, M, K] of a sample or more, not ",
                    shape_text(a));
    check.same_kind(b, "b", a);
    check.shape(b, "b", {a.size(0), a.size(1), a.size(3), b.size(b.dim() - 1)});
    GemmArguments args{};
    args.dtype = check.floating(a, "the first matrix");
    set_left(args, a, 2, 3);
    set_right(args, b, 2, 3);
    args.parts = a.size(1);
    args.a_part = a.stride(1);
    args.b_part = b.stride(1);
    Tensor c = new_tensor(a, {args.models, args.rows, args.columns});
    args.c = c.data_ptr();
    run(args);
    return c;
}

Tensor matmul(const Tensor& a, const Tensor& b) {
    const Checker check("matmul");
    check_cube(check, a, "a");
    check_cube(check, b, "b");
    check.same_kind(b, "b", a);
    check.shape(b, "b", {a.size(0), a.size(2), b.size(2)});
    GemmArguments args{};
    args.dtype = check.floating(a, "the first matrix");
    set_left(args, a, 1, 2);
    set_right(args, b, 1, 2);
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
    m.impl("pixel_products", TORCH_BOX(&pixel_products));
    m.impl("sum_of_products", TORCH_BOX(&sum_of_products));
}

}  // namespace dnnsuite::fused
