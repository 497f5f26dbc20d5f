// SPDX-License-Identifier: MIT
// max_pool and avg_pool: tensors to arguments. A Backend has largest, largest_gradient, mean and mean_gradient (args).
#pragma once

#include <tuple>

#include "fused/math/pool.hpp"
#include "fused/tensors.hpp"

namespace dnnsuite::fused {

/// The windows of a pooling, along the height and along the width.
struct PoolSteps {
    int64_t kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;

    Window height(int64_t input, int64_t output) const {
        return {input, output, kernel_h, stride_h, padding_h, dilation_h};
    }
    Window width(int64_t input, int64_t output) const {
        return {input, output, kernel_w, stride_w, padding_w, dilation_w};
    }
};

template <class Backend>
struct PoolOperators {
    static std::tuple<Tensor, Tensor> max_pool(const Tensor& x, int64_t kernel_h, int64_t kernel_w, int64_t stride_h,
                                               int64_t stride_w, int64_t padding_h, int64_t padding_w,
                                               int64_t dilation_h, int64_t dilation_w, bool ceil_mode, bool relu) {
        const Checker check("max_pool");
        const PoolSteps steps{kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w};
        STD_TORCH_CHECK(kernel_h * kernel_w <= kNoTap, "max_pool: a window of ", kernel_h, " x ", kernel_w,
                        " has more than ", kNoTap, " pixels");
        const Tensor input = packed(x);
        PoolArguments args = forward(check, input, steps, ceil_mode);
        Tensor y = result(input, args);
        Tensor taps =
            torch::stable::new_empty(input, {y.size(0), y.size(1), y.size(2), y.size(3), y.size(4)}, ScalarType::Byte);
        args.relu = relu;
        args.to = y.data_ptr();
        args.to_taps = static_cast<uint8_t*>(taps.data_ptr());
        Backend::largest(args);
        return {y, taps};
    }

    static Tensor max_pool_backward(const Tensor& grad_in, const Tensor& taps_in, int64_t height, int64_t width,
                                    int64_t kernel_h, int64_t kernel_w, int64_t stride_h, int64_t stride_w,
                                    int64_t padding_h, int64_t padding_w, int64_t dilation_h, int64_t dilation_w) {
        const Checker check("max_pool_backward");
        const Tensor grad = packed(grad_in), taps = packed(taps_in);
        check.dtype(taps, "taps", ScalarType::Byte);
        check.same_shape(taps, "taps", grad);
        PoolArguments args =
            backward(check, grad, height, width,
                     {kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w});
        Tensor dx = new_tensor(grad, {grad.size(0), grad.size(1), height, width, grad.size(4)});
        args.taps = static_cast<const uint8_t*>(taps.data_ptr());
        args.to = dx.data_ptr();
        Backend::largest_gradient(args);
        return dx;
    }

    static Tensor avg_pool(const Tensor& x, int64_t kernel_h, int64_t kernel_w, int64_t stride_h, int64_t stride_w,
                           int64_t padding_h, int64_t padding_w, bool ceil_mode, bool count_include_pad,
                           int64_t divisor) {
        const Checker check("avg_pool");
        const Tensor input = packed(x);
        PoolArguments args =
            forward(check, input, {kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, 1, 1}, ceil_mode);
        Tensor y = result(input, args);
        args.count_padding = count_include_pad;
        args.divisor = divisor;
        args.to = y.data_ptr();
        Backend::mean(args);
        return y;
    }

    static Tensor avg_pool_backward(const Tensor& grad_in, int64_t height, int64_t width, int64_t kernel_h,
                                    int64_t kernel_w, int64_t stride_h, int64_t stride_w, int64_t padding_h,
                                    int64_t padding_w, bool count_include_pad, int64_t divisor) {
        const Checker check("avg_pool_backward");
        const Tensor grad = packed(grad_in);
        PoolArguments args =
            backward(check, grad, height, width, {kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, 1, 1});
        Tensor dx = new_tensor(grad, {grad.size(0), grad.size(1), height, width, grad.size(4)});
        args.count_padding = count_include_pad;
        args.divisor = divisor;
        args.to = dx.data_ptr();
        Backend::mean_gradient(args);
        return dx;
    }

    static void implement(torch::stable::detail::StableLibrary& m) {
        m.impl("max_pool", TORCH_BOX(&max_pool));
        m.impl("max_pool_backward", TORCH_BOX(&max_pool_backward));
        m.impl("avg_pool", TORCH_BOX(&avg_pool));
        m.impl("avg_pool_backward", TORCH_BOX(&avg_pool_backward));
    }

  private:
    static PoolArguments arguments(const Checker& check, const Tensor& t, const PoolSteps& s) {
        STD_TORCH_CHECK(t.dim() == 5, check.op(), ": the first argument must be [B, N, H, W, C], not shape ",
                        shape_text(t));
        const bool positive = s.kernel_h > 0 && s.kernel_w > 0 && s.stride_h > 0 && s.stride_w > 0 &&
                              s.dilation_h > 0 && s.dilation_w > 0 && s.padding_h >= 0 && s.padding_w >= 0;
        STD_TORCH_CHECK(positive, check.op(),
                        ": kernel, stride and dilation must be positive and padding not negative");
        PoolArguments args{};
        args.dtype = check.floating(t, "the first argument");
        args.channels = t.size(4);
        args.from = t.data_ptr();
        return args;
    }

    static PoolArguments forward(const Checker& check, const Tensor& x, const PoolSteps& s, bool ceil_mode) {
        PoolArguments args = arguments(check, x, s);
        const int64_t height = pooled_size(x.size(2), s.kernel_h, s.stride_h, s.padding_h, s.dilation_h, ceil_mode);
        const int64_t width = pooled_size(x.size(3), s.kernel_w, s.stride_w, s.padding_w, s.dilation_w, ceil_mode);
        STD_TORCH_CHECK(height > 0 && width > 0, check.op(), ": the windows do not fit into ", shape_text(x));
        args.height = s.height(x.size(2), height);
        args.width = s.width(x.size(3), width);
        args.rows = lines(x, height, width);
        return args;
    }

    static PoolArguments backward(const Checker& check, const Tensor& grad, int64_t height, int64_t width,
                                  const PoolSteps& s) {
        PoolArguments args = arguments(check, grad, s);
        args.height = s.height(height, grad.size(2));
        args.width = s.width(width, grad.size(3));
        args.rows = lines(grad, height, width);
        return args;
    }

    static Rows lines(const Tensor& t, int64_t height, int64_t width) {
        const int64_t columns = width * t.size(4);
        return cut_rows(t.size(0), t.size(1) * height * columns, columns);
    }

    static Tensor result(const Tensor& x, const PoolArguments& args) {
        return new_tensor(x, {x.size(0), x.size(1), args.height.output, args.width.output, x.size(4)});
    }
};

}  // namespace dnnsuite::fused
