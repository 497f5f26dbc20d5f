// SPDX-License-Identifier: MIT
// group_norm: tensors to arguments. A Backend has forward(args, like) and backward(args, like).
#pragma once

#include <tuple>

#include "fused/channel_layout.hpp"
#include "fused/norm_arguments.hpp"
#include "fused/tensors.hpp"

namespace dnnsuite::fused {

template <class Backend>
struct GroupNormOperators {
    static constexpr int64_t kSmallest = 16;  // elements of a channel, if they lie side by side
    static constexpr int64_t kColumns = 64;   // of a row, or a few more: its sums are to fit the registers

    /// The arguments that forward and backward share; the tensors are packed, x as `layout` says.
    static GroupNormArguments arguments(const Checker& check, const ChannelLayout& layout, const Tensor& x,
                                        int64_t groups, const OptionalTensor& weight, const OptionalTensor& bias,
                                        double eps) {
        GroupNormArguments args{};
        args.dtype = check.floating(x, "x");
        args.models = x.size(0);
        args.batch = layout.batch;
        args.channels = layout.channels;
        args.inner = layout.inner;
        const bool pixels = layout.channels_last || (Backend::kChannelsLast && args.inner == 1);
        args.columns = pixels && args.channels > 0 ? columns_of_row(args.channels, args.inner, kColumns) : 0;
        STD_TORCH_CHECK(groups > 0 && args.channels % groups == 0, check.op(), ": ", args.channels,
                        " channels are not divisible into ", groups, " groups");
        STD_TORCH_CHECK(args.inner >= kSmallest || args.columns > 0 || args.models == 0, check.op(),
                        ": a channel must have ", kSmallest, " elements or more, shape is ", shape_text(x));
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

    static ChannelLayout layout_of(const Checker& check, const Tensor& x) {
        ChannelLayout layout(check, x);
        if (!Backend::kChannelsLast && layout.channels_last) layout.make_contiguous();
        return layout;
    }

    static Tensor forward(const Tensor& x, int64_t groups, OptionalTensor weight, OptionalTensor bias, double eps) {
        const Checker check("group_norm");
        const ChannelLayout layout = layout_of(check, x);
        const Tensor input = layout.packed(x);
        const OptionalTensor w = packed(weight), b = packed(bias);
        GroupNormArguments args = arguments(check, layout, input, groups, w, b, eps);
        Tensor y = layout.empty(x);
        args.y = y.data_ptr();
        Backend::forward(args, x);
        return y;
    }

    /// (dx, dweight, dbias)
    static std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& grad, const Tensor& x, int64_t groups,
                                                       OptionalTensor weight, double eps) {
        const Checker check("group_norm_backward");
        const ChannelLayout layout = layout_of(check, x);
        check.same_kind(grad, "grad", x);
        check.same_shape(grad, "grad", x);
        const Tensor input = layout.packed(x), g = layout.packed(grad);
        const OptionalTensor w = packed(weight);
        GroupNormArguments args = arguments(check, layout, input, groups, w, {}, eps);
        Tensor dx = layout.empty(x), dweight = new_tensor(x, {args.models, args.channels});
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
