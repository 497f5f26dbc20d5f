// SPDX-License-Identifier: MIT
// short_softmax: softmax along rows of a few numbers, which torch computes row by row. On CUDA torch's own serves.
#include "fused/cpu/softmax_kernel.hpp"

#include "fused/cpu/parallel.hpp"

namespace dnnsuite::fused {
namespace {

/// Of x [B, ..., columns].
SoftmaxArguments softmax_arguments(const Checker& check, const Tensor& x, bool log) {
    check.at_least(x, "x", 2);
    const int64_t columns = x.size(x.dim() - 1), most = SoftmaxArguments::kMostColumns;
    STD_TORCH_CHECK(columns > 0 && columns <= most, check.op(), ": rows must have 1 to ", most, " numbers, not ",
                    columns);
    SoftmaxArguments args{};
    args.dtype = check.floating(x, "x");
    args.log = log;
    args.rows = cut_rows(x.size(0), elements_per_model(x), columns);
    args.x = x.data_ptr();
    return args;
}

Tensor short_softmax(const Tensor& given, bool log) {
    const Tensor x = packed(given);
    SoftmaxArguments args = softmax_arguments(Checker("short_softmax"), x, log);
    Tensor y = new_like(x);
    args.y = y.data_ptr();
    if (x.numel() > 0) run_rows(args, DNNSUITE_SELECT(softmax));
    return y;
}

Tensor short_softmax_backward(const Tensor& given_grad, const Tensor& given, bool log) {
    const Checker check("short_softmax_backward");
    const Tensor grad = packed(given_grad), y = packed(given);
    check.same_kind(grad, "grad", y);
    check.same_shape(grad, "grad", y);
    SoftmaxArguments args = softmax_arguments(check, y, log);
    Tensor dx = new_like(y);
    args.grad = grad.data_ptr();
    args.y = dx.data_ptr();
    if (y.numel() > 0) run_rows(args, DNNSUITE_SELECT(softmax_backward));
    return dx;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) {
    m.impl("short_softmax", TORCH_BOX(&short_softmax));
    m.impl("short_softmax_backward", TORCH_BOX(&short_softmax_backward));
}

}  // namespace dnnsuite::fused
