// SPDX-License-Identifier: MIT
// scaled: numbers times factors that rows or columns share. On CUDA torch's own product serves.
#include "fused/cpu/scale_kernel.hpp"

#include <tuple>

#include "fused/cpu/cache.hpp"
#include "fused/cpu/parallel.hpp"

namespace dnnsuite::fused {
namespace {

/// Of x [groups, rows, columns] and factors [groups, rows] or [groups, columns].
ScaleArguments scale_arguments(const Checker& check, const Tensor& x, const Tensor& factors, bool by_rows) {
    STD_TORCH_CHECK(x.dim() == 3, check.op(), ": x must be [groups, rows, columns], not ", shape_text(x));
    check.same_kind(factors, "factors", x);
    check.shape(factors, "factors", {x.size(0), x.size(by_rows ? 1 : 2)});
    ScaleArguments args{};
    args.dtype = check.floating(x, "x");
    args.by_rows = by_rows;
    args.rows = cut_rows(x.size(0), x.size(1) * x.size(2), x.size(2));
    args.streams = leaves_caches(x.numel() * (args.dtype == DType::kFloat64 ? 8 : 4));
    args.x = x.data_ptr();
    args.factors = factors.data_ptr();
    return args;
}

Tensor scaled(const Tensor& given, const Tensor& given_factors, bool by_rows) {
    const Tensor x = packed(given), factors = packed(given_factors);
    ScaleArguments args = scale_arguments(Checker("scaled"), x, factors, by_rows);
    Tensor y = new_like(x);
    args.y = y.data_ptr();
    if (x.numel() > 0) run_rows(args, DNNSUITE_SELECT(scale));
    return y;
}

/// (dx, gradient of the factors).
std::tuple<Tensor, Tensor> scaled_backward(const Tensor& given_grad, const Tensor& given, const Tensor& given_factors,
                                           bool by_rows) {
    const Checker check("scaled_backward");
    const Tensor grad = packed(given_grad), x = packed(given), factors = packed(given_factors);
    check.same_kind(grad, "grad", x);
    check.same_shape(grad, "grad", x);
    ScaleArguments args = scale_arguments(check, x, factors, by_rows);
    Tensor dx = new_like(x);
    args.grad = grad.data_ptr();
    args.dx = dx.data_ptr();
    const auto kernel = DNNSUITE_SELECT(scale_backward);
    if (by_rows || x.numel() == 0) {
        Tensor sums = new_like(factors);
        args.sums = sums.data_ptr();
        if (x.numel() == 0)
            torch::stable::zero_(sums);
        else
            run_rows(args, kernel);
        return {dx, sums};
    }
    const TaskSums sums(x, args.rows);
    args.sums = sums.parts();
    run_rows(args, kernel);
    return {dx, sums.total<CpuBackend>(args.dtype)};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) {
    m.impl("scaled", TORCH_BOX(&scaled));
    m.impl("scaled_backward", TORCH_BOX(&scaled_backward));
}

}  // namespace dnnsuite::fused
