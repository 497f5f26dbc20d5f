// SPDX-License-Identifier: MIT
// group_norm: tensors to arguments. A Backend has forward(args, like) and backward(args, like).
#pragma once

#include <tuple>

#include "fused/norm_arguments.hpp"
#include "fused/tensors.hpp"

namespace dnnsuite::fused {

template <class Backend>
struct GroupNormOperators {
    static constexpr int64_t kSmallest = 16;  // elements that a channel must have

    /// The arguments that forward and backward share; the tensors are packed.
    static GroupNormArguments arguments(const Checker& check, const Tensor& x, int64_t groups,
                                        const OptionalTensor& weight, const OptionalTensor& bias, double eps) {
        check.at_least(x, "x", 3);
        GroupNormArguments args{};
        args.dtype = check.floating(x, "x");
        args.models = x.size(0);
        args.batch = x.size(1);
        args.channels = x.size(2);
        args.inner = 1;
        for (int64_t d = 3; d < x.dim(); ++d) args.inner *= x.size(d);
        STD_TORCH_CHECK(groups > 0 && args.channels % groups == 0, check.op(), ": ", args.channels,
                        " channels are not divisible into ", groups, " groups");
        STD_TORCH_CHECK(args.inner >= kSmallest || args.models == 0, check.op(), ": a channel must have ", kSmallest,
                        " elements or more, shape is ", shape_text(x));
        args.groups = groups;
        args.eps = eps;
        args.x = x.data_ptr();
        args.weight = parameter(check, weight, "weight", x);
        args.bias = parameter(check, bias, "bias", x);
        return args;
    }

    static const void* parameter(const Checker& check, const OptionalTensor& t, const char* name, const Tensor& x) {
        if (!t.has_value()) return nullptr;
        check.same_kind(*t, name, x);
        check.shape(*t, name, {x.size(0), x.size(2)});
        return t->data_ptr();
    }

    static Tensor forward(const Tensor& x, int64_t groups, OptionalTensor weight, OptionalTensor bias, double eps) {
        const Tensor input = packed(x);
        const OptionalTensor w = packed(weight), b = packed(bias);
        GroupNormArguments args = arguments(Checker("group_norm"), input, groups, w, b, eps);
        Tensor y = new_like(input);
        args.y = y.data_ptr();
        Backend::forward(args, x);
        return y;
    }

    /// (dx, dweight, dbias)
    static std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& grad, const Tensor& x, int64_t groups,
                                                       OptionalTensor weight, double eps) {
        const Checker check("group_norm_backward");
        const Tensor input = packed(x), g = packed(grad);
        const OptionalTensor w = packed(weight);
        GroupNormArguments args = arguments(check, input, groups, w, {}, eps);
        check.same_kind(grad, "grad", x);
        check.same_shape(grad, "grad", x);
        Tensor dx = new_like(input), dweight = new_tensor(x, {args.models, args.channels});
        Tensor dbias = new_tensor(x, {args.models, args.channels});
        args.grad = g.data_ptr();
        args.dx = dx.data_ptr();
        args.dweight = dweight.data_ptr();
        args.dbias = dbias.data_ptr();
        Backend::backward(args, x);
        return {dx, dweight, dbias};
    }

    static void implement(torch::stable::detail::StableLibrary& m) {
        m.impl("group_norm", TORCH_BOX(&forward));
        m.impl("group_norm_backward", TORCH_BOX(&backward));
    }
};

}  // namespace dnnsuite::fused
