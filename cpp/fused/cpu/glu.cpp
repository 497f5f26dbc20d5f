// SPDX-License-Identifier: MIT
// glu: the first half of a dimension times the logistic function of the second. On CUDA torch's own serves.
#include "fused/cpu/glu_kernel.hpp"

#include <vector>

#include "fused/cpu/cache.hpp"
#include "fused/cpu/parallel.hpp"

namespace dnnsuite::fused {
namespace {

/// Of x [B, ...], whose dimension `dim` has two halves.
GluArguments gate_arguments(const Checker& check, const Tensor& x, int64_t dim) {
    check.at_least(x, "x", 2);
    STD_TORCH_CHECK(dim > 0 && dim < x.dim() && x.size(dim) % 2 == 0, check.op(), ": dimension ", dim, " of ",
                    shape_text(x), " has no two halves");
    GluArguments args{};
    args.dtype = check.floating(x, "x");
    args.run = x.size(dim) / 2;
    for (int64_t d = dim + 1; d < x.dim(); ++d) args.run *= x.size(d);
    args.rows = cut_rows(x.size(0), elements_per_model(x), 2 * args.run);
    args.x = x.data_ptr();
    return args;
}

std::vector<int64_t> halved(const Tensor& x, int64_t dim) {
    std::vector<int64_t> sizes(x.sizes().begin(), x.sizes().end());
    sizes[static_cast<size_t>(dim)] /= 2;
    return sizes;
}

Tensor gated(const Tensor& given, int64_t dim) {
    const Tensor x = packed(given);
    GluArguments args = gate_arguments(Checker("glu"), x, dim);
    Tensor y = new_tensor(x, halved(x, dim).data(), x.dim());
    if (x.numel() == 0) return y;
    args.y = y.data_ptr();
    args.streams = leaves_caches(y.numel() * (args.dtype == DType::kFloat64 ? 8 : 4));
    run_rows(args, DNNSUITE_SELECT(glu));
    return y;
}

Tensor gated_backward(const Tensor& given_grad, const Tensor& given, int64_t dim) {
    const Checker check("glu_backward");
    const Tensor grad = packed(given_grad), x = packed(given);
    GluArguments args = gate_arguments(check, x, dim);
    check.same_kind(grad, "grad", x);
    STD_TORCH_CHECK(grad.numel() * 2 == x.numel(), check.op(), ": grad ", shape_text(grad), " is not half of x ",
                    shape_text(x));
    Tensor dx = new_like(x);
    if (x.numel() == 0) return dx;
    args.grad = grad.data_ptr();
    args.dx = dx.data_ptr();
    args.streams = leaves_caches(dx.numel() * (args.dtype == DType::kFloat64 ? 8 : 4));
    run_rows(args, DNNSUITE_SELECT(glu_backward));
    return dx;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) {
    m.impl("glu", TORCH_BOX(&gated));
    m.impl("glu_backward", TORCH_BOX(&gated_backward));
}

}  // namespace dnnsuite::fused
