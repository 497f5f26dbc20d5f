// SPDX-License-Identifier: MIT
// prelu: rectifiers with a slope of each channel. On CUDA torch's own serves.
#include <tuple>

#include "fused/cpu/parallel.hpp"
#include "fused/cpu/prelu_kernel.hpp"

namespace dnnsuite::fused {
namespace {

/// Of x [B, ..., run of `inner` numbers of each channel] and slopes [B, C].
PreluArguments slope_arguments(const Checker& check, const Tensor& x, const Tensor& slopes, int64_t inner) {
    check.at_least(x, "x", 2);
    check.same_kind(slopes, "slopes", x);
    STD_TORCH_CHECK(slopes.dim() == 2 && slopes.size(0) == x.size(0) && slopes.size(1) > 0, check.op(),
                    ": slopes must be [", x.size(0), ", channels], not ", shape_text(slopes));
    const int64_t channels = slopes.size(1), numbers = elements_per_model(x);
    STD_TORCH_CHECK(inner > 0 && numbers % (channels * inner) == 0, check.op(), ": ", shape_text(x),
                    " does not consist of ", channels, " channels of ", inner, " numbers");
    PreluArguments args{};
    args.dtype = check.floating(x, "x");
    args.channels = channels;
    args.turned = inner == 1;
    args.rows = cut_rows(x.size(0), numbers, args.turned ? channels : inner);
    args.x = x.data_ptr();
    args.slopes = slopes.data_ptr();
    return args;
}

Tensor apply_slopes(const Tensor& given, const Tensor& given_slopes, int64_t inner) {
    const Tensor x = packed(given), slopes = packed(given_slopes);
    PreluArguments args = slope_arguments(Checker("prelu"), x, slopes, inner);
    Tensor y = new_like(x);
    args.y = y.data_ptr();
    run_rows(args, DNNSUITE_SELECT(prelu));
    return y;
}

/// (dx, gradient of the slopes).
std::tuple<Tensor, Tensor> apply_slopes_backward(const Tensor& given_grad, const Tensor& given,
                                                 const Tensor& given_slopes, int64_t inner) {
    const Checker check("prelu_backward");
    const Tensor grad = packed(given_grad), x = packed(given), slopes = packed(given_slopes);
    check.same_kind(grad, "grad", x);
    check.same_shape(grad, "grad", x);
    PreluArguments args = slope_arguments(check, x, slopes, inner);
    Tensor dx = new_like(x);
    args.grad = grad.data_ptr();
    args.dx = dx.data_ptr();
    Rows of_channels = args.rows;
    of_channels.columns = args.channels;
    const TaskSums sums(x, of_channels);
    args.sums = sums.parts();
    run_rows(args, DNNSUITE_SELECT(prelu_backward));
    return {dx, sums.total<CpuBackend>(args.dtype)};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) {
    m.impl("prelu", TORCH_BOX(&apply_slopes));
    m.impl("prelu_backward", TORCH_BOX(&apply_slopes_backward));
}

}  // namespace dnnsuite::fused
