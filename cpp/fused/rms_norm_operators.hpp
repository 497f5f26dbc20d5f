// SPDX-License-Identifier: MIT
// rms_norm: tensors to arguments. A Backend has forward(args, like), backward(args, like) and add_task_sums.
#pragma once

#include <tuple>

#include "fused/norm_arguments.hpp"
#include "fused/tensors.hpp"

namespace dnnsuite::fused {

template <class Backend>
struct RmsNormOperators {
    /// The arguments that forward and backward share; x and weight are packed.
    static RmsNormArguments arguments(const Checker& check, const Tensor& x, const OptionalTensor& weight, double eps) {
        check.at_least(x, "x", 2);
        const int64_t columns = x.size(x.dim() - 1);
        STD_TORCH_CHECK(columns > 0, check.op(), ": the last dimension of x must not be 0, shape is ", shape_text(x));
        RmsNormArguments args{};
        args.dtype = check.floating(x, "x");
        args.rows = cut_rows(x.size(0), elements_per_model(x), columns);
        args.eps = eps;
        args.x = x.data_ptr();
        args.shared_x = !x.is_cuda() && is_shared(x);
        if (weight.has_value()) {
            check.same_kind(*weight, "weight", x);
            check.shape(*weight, "weight", {x.size(0), columns});
            args.weight = weight->data_ptr();
        }
        return args;
    }

    static Tensor forward(const Tensor& x, OptionalTensor weight, double eps) {
        const Tensor input = packed_or_shared(x);
        const OptionalTensor w = packed(weight);
        RmsNormArguments args = arguments(Checker("rms_norm"), input, w, eps);
        Tensor y = new_like(input);
        args.y = y.data_ptr();
        Backend::forward(args, x);
        return y;
    }

    /// (dx, dweight); dweight is empty [0] without a weight.
    static std::tuple<Tensor, Tensor> backward(const Tensor& grad, const Tensor& x, OptionalTensor weight, double eps) {
        const Checker check("rms_norm_backward");
        const Tensor input = packed_or_shared(x), g = packed(grad);
        const OptionalTensor w = packed(weight);
        RmsNormArguments args = arguments(check, input, w, eps);
        check.same_kind(grad, "grad", x);
        check.same_shape(grad, "grad", x);
        Tensor dx = new_like(input);
        args.grad = g.data_ptr();
        args.dx = dx.data_ptr();
        if (!weight.has_value()) {
            Backend::backward(args, x);
            return {dx, new_tensor(x, {0})};
        }
        const TaskSums sums(x, args.rows);
        args.weight_sums = sums.parts();
        Backend::backward(args, x);
        return {dx, sums.template total<Backend>(args.dtype)};
    }

    /// dweight, where x needs no gradient.
    static Tensor backward_weight(const Tensor& grad, const Tensor& x, double eps) {
        const Checker check("rms_norm_backward_weight");
        const Tensor input = packed_or_shared(x), g = packed(grad);
        RmsNormArguments args = arguments(check, input, {}, eps);
        check.same_kind(grad, "grad", x);
        check.same_shape(grad, "grad", x);
        args.grad = g.data_ptr();
        const TaskSums sums(x, args.rows);
        args.weight_sums = sums.parts();
        Backend::backward(args, x);
        return sums.template total<Backend>(args.dtype);
    }

    static void implement(torch::stable::detail::StableLibrary& m) {
        m.impl("rms_norm", TORCH_BOX(&forward));
        m.impl("rms_norm_backward", TORCH_BOX(&backward));
    }
};

}  // namespace dnnsuite::fused
