// SPDX-License-Identifier: MIT
// depthwise convolution: tensors to arguments, the same for both devices. A Backend has forward(args, like),
// backward_input(args, like), backward_weight(args, like) and add_task_sums.
#pragma once

#include "fused/tensors.hpp"

namespace dnnsuite::fused {

/// x [B, ...] with every model contiguous: one that all models share (stride 0) stays one copy.
inline Tensor packed_models(const Tensor& t) {
    if (t.dim() == 0 || t.size(0) == 1 || t.stride(0) != 0) return packed(t);
    int64_t step = 1;
    for (int64_t i = t.dim() - 1; i > 0; --i) {
        if (t.size(i) > 1 && t.stride(i) != step) return packed(t);
        step *= t.size(i);
    }
    return t;
}

/// The elements from one model of what packed_models gave to the next: 0 for one that all share.
inline int64_t packed_model_stride(const Tensor& t) {
    return t.size(0) > 1 && t.stride(0) == 0 ? 0 : elements_per_model(t);
}

struct Steps {
    int64_t stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
};

inline Window window_of(const Checker& check, int64_t input, int64_t kernel, int64_t stride, int64_t padding,
                        int64_t dilation) {
    STD_TORCH_CHECK(kernel > 0 && stride > 0 && padding >= 0 && dilation > 0, check.op(), ": kernel ", kernel,
                    ", stride ", stride, ", dilation ", dilation, " must be positive and padding ", padding,
                    " not negative");
    const int64_t room = input + 2 * padding - dilation * (kernel - 1) - 1;
    STD_TORCH_CHECK(room >= 0, check.op(), ": an input of ", input, " with padding ", padding,
                    " is smaller than the kernel of ", kernel, " with dilation ", dilation);
    return {input, room / stride + 1, kernel, stride, padding, dilation};
}

template <class Backend>
struct DepthwiseOperators {
    static DepthwiseArguments geometry(const Checker& check, const Tensor& like, int64_t height, int64_t width,
                                       int64_t kernel_h, int64_t kernel_w, const Steps& steps) {
        DepthwiseArguments args{};
        args.dtype = check.floating(like, "the first argument");
        args.channels = like.size(4);
        args.height = window_of(check, height, kernel_h, steps.stride_h, steps.padding_h, steps.dilation_h);
        args.width = window_of(check, width, kernel_w, steps.stride_w, steps.padding_w, steps.dilation_w);
        return args;
    }

    static void rank(const Checker& check, const Tensor& t, const char* name, int64_t dims) {
        STD_TORCH_CHECK(t.dim() == dims, check.op(), ": ", name, " must have ", dims, " dimensions, not shape ",
                        shape_text(t));
    }

    static Rows lines(const Tensor& t, int64_t height, int64_t width) {
        const int64_t columns = width * t.size(4);
        return cut_rows(t.size(0), t.size(1) * height * columns, columns);
    }

    static Tensor forward(const Tensor& x_in, const Tensor& weight_in, OptionalTensor bias_in, int64_t stride_h,
                          int64_t stride_w, int64_t padding_h, int64_t padding_w, int64_t dilation_h,
                          int64_t dilation_w) {
        const Checker check("depthwise");
        rank(check, x_in, "x", 5);
        rank(check, weight_in, "weight", 4);
        const Tensor x = packed_models(x_in), weight = packed(weight_in);
        const OptionalTensor bias = packed(bias_in);
        check.same_kind(weight, "weight", x);
        check.shape(weight, "weight", {x.size(0), weight.size(1), weight.size(2), x.size(4)});
        DepthwiseArguments args = geometry(check, x, x.size(2), x.size(3), weight.size(1), weight.size(2),
                                           {stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w});
        if (bias.has_value()) {
            check.same_kind(*bias, "bias", x);
            check.shape(*bias, "bias", {x.size(0), x.size(4)});
        }
        Tensor y = new_tensor(x, {x.size(0), x.size(1), args.height.output, args.width.output, x.size(4)});
        args.rows = lines(x, args.height.output, args.width.output);
        args.x = x.data_ptr();
        args.x_stride = packed_model_stride(x);
        args.weight = weight.data_ptr();
        args.bias = pointer(bias);
        args.y = y.data_ptr();
        Backend::forward(args, x);
        return y;
    }

    static Tensor backward_input(const Tensor& grad_in, const Tensor& weight_in, int64_t height, int64_t width,
                                 int64_t stride_h, int64_t stride_w, int64_t padding_h, int64_t padding_w,
                                 int64_t dilation_h, int64_t dilation_w) {
        const Checker check("depthwise_backward_input");
        rank(check, grad_in, "grad", 5);
        rank(check, weight_in, "weight", 4);
        const Tensor grad = packed_models(grad_in), weight = packed(weight_in);
        check.same_kind(weight, "weight", grad);
        check.shape(weight, "weight", {grad.size(0), weight.size(1), weight.size(2), grad.size(4)});
        DepthwiseArguments args = geometry(check, grad, height, width, weight.size(1), weight.size(2),
                                           {stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w});
        check.shape(grad, "grad", {grad.size(0), grad.size(1), args.height.output, args.width.output, grad.size(4)});
        Tensor dx = new_tensor(grad, {grad.size(0), grad.size(1), height, width, grad.size(4)});
        args.rows = lines(grad, height, width);
        args.grad = grad.data_ptr();
        args.grad_stride = packed_model_stride(grad);
        args.weight = weight.data_ptr();
        args.y = dx.data_ptr();
        Backend::backward_input(args, grad);
        return dx;
    }

    static Tensor backward_weight(const Tensor& grad_in, const Tensor& x_in, int64_t kernel_h, int64_t kernel_w,
                                  int64_t stride_h, int64_t stride_w, int64_t padding_h, int64_t padding_w,
                                  int64_t dilation_h, int64_t dilation_w) {
        const Checker check("depthwise_backward_weight");
        rank(check, grad_in, "grad", 5);
        rank(check, x_in, "x", 5);
        const Tensor grad = packed_models(grad_in), x = packed_models(x_in);
        check.same_kind(x, "x", grad);
        DepthwiseArguments args = geometry(check, x, x.size(2), x.size(3), kernel_h, kernel_w,
                                           {stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w});
        check.shape(grad, "grad", {x.size(0), x.size(1), args.height.output, args.width.output, x.size(4)});
        const int64_t line = args.width.output * args.channels;
        args.rows = cut_rows(x.size(0), x.size(1) * args.height.output * line, line, 65536);
        args.x = x.data_ptr();
        args.x_stride = packed_model_stride(x);
        args.grad = grad.data_ptr();
        args.grad_stride = packed_model_stride(grad);
        Rows sums_of = args.rows;  // the same tasks, of sums as wide as all taps
        sums_of.columns = (args.taps() + 1) * args.channels;
        const TaskSums sums(x, sums_of);
        args.sums = sums.parts();
        Backend::backward_weight(args, x);
        return sums.template total<Backend>(args.dtype);
    }

    static void implement(torch::stable::detail::StableLibrary& m) {
        m.impl("depthwise", TORCH_BOX(&forward));
        m.impl("depthwise_backward_input", TORCH_BOX(&backward_input));
        m.impl("depthwise_backward_weight", TORCH_BOX(&backward_weight));
    }
};

}  // namespace dnnsuite::fused
