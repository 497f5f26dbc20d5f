// SPDX-License-Identifier: MIT
// activate: activations that are exponentials. On CUDA torch's own serve.
#include <string>

#include "fused/cpu/activate_kernel.hpp"
#include "fused/cpu/parallel.hpp"

namespace dnnsuite::fused {
namespace {

Curve curve_of(const Checker& check, const std::string& name) {
    if (name == "tanh") return Curve::kTanh;
    if (name == "gelu_tanh") return Curve::kGeluTanh;
    if (name == "mish") return Curve::kMish;
    if (name == "softplus") return Curve::kSoftplus;
    STD_TORCH_CHECK(name == "elu", check.op(), ": curve must be tanh, gelu_tanh, mish, softplus or elu, not ", name);
    return Curve::kElu;
}

ActivateArguments curve_arguments(const Checker& check, const Tensor& x, const std::string& curve, double first,
                                  double second) {
    check.dtype(x, "x", ScalarType::Float);
    ActivateArguments args{};
    args.curve = curve_of(check, curve);
    args.count = x.numel();
    args.rows = cut_rows(1, args.count, 1024);
    args.first = static_cast<float>(first);
    args.second = static_cast<float>(second);
    args.x = static_cast<const float*>(x.data_ptr());
    return args;
}

Tensor activated_by(const Tensor& given, const std::string& curve, double first, double second) {
    const Tensor x = packed(given);
    ActivateArguments args = curve_arguments(Checker("activate"), x, curve, first, second);
    Tensor y = new_like(x);
    args.y = static_cast<float*>(y.data_ptr());
    run_rows(args, DNNSUITE_SELECT(activate));
    return y;
}

Tensor activated_by_backward(const Tensor& given_grad, const Tensor& given, const std::string& curve, double first,
                             double second) {
    const Checker check("activate_backward");
    const Tensor grad = packed(given_grad), x = packed(given);
    check.same_kind(grad, "grad", x);
    check.same_shape(grad, "grad", x);
    ActivateArguments args = curve_arguments(check, x, curve, first, second);
    Tensor dx = new_like(x);
    args.grad = static_cast<const float*>(grad.data_ptr());
    args.y = static_cast<float*>(dx.data_ptr());
    run_rows(args, DNNSUITE_SELECT(activate_backward));
    return dx;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) {
    m.impl("activate", TORCH_BOX(&activated_by));
    m.impl("activate_backward", TORCH_BOX(&activated_by_backward));
}

}  // namespace dnnsuite::fused
