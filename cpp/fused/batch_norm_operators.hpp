// SPDX-License-Identifier: MIT
// batch_norm_act: tensors to arguments, the same for both devices. A Backend has forward(args, like), take_in(args), after
// which running statistics have taken the batch's in, and backward(args, like).
#pragma once

#include <tuple>

#include "fused/channel_layout.hpp"
#include "fused/norm_arguments.hpp"

namespace dnnsuite::fused {

inline NormActivation norm_activation(const Checker& check, const std::string& name) {
    const std::pair<const char*, NormActivation> known[] = {
        {"none", NormActivation::kNone},           {"relu", NormActivation::kRelu},
        {"relu6", NormActivation::kRelu6},         {"leaky_relu", NormActivation::kLeakyRelu},
        {"hardswish", NormActivation::kHardswish}, {"silu", NormActivation::kSilu}};
    for (const auto& [text, kind] : known)
        if (name == text) return kind;
    STD_TORCH_CHECK(false, check.op(),
                    ": activation must be 'none', 'relu', 'relu6', 'leaky_relu', 'hardswish' or 'silu', not '", name,
                    "'");
    return NormActivation::kNone;
}

struct BatchNormInputs {
    static constexpr int64_t kPlane = 16;  // elements from which on a map is a plane of its own

    ChannelLayout layout, given;  // as the kernels take it, and as it came
    BatchNormArguments args{};
    Tensor x;
    OptionalTensor weight, bias, residual, mean, variance, grad, statistics;

    BatchNormInputs(const Checker& check, const Tensor& x_in, double eps, const std::string& activation, double slope)
        : layout(check, x_in, x_in.is_cuda()), given(check, x_in, true), x(placed(x_in, args.x_step)) {
        args.dtype = check.floating(x, "x");
        args.activation = norm_activation(check, activation);
        args.eps = eps;
        args.slope = slope;
        args.channels = layout.channels;
        args.x = x.data_ptr();
        args.x_stride = model_stride(x);
        args.out_step = layout.side_by_side ? x.size(0) * layout.unit() : layout.unit();
        args.out_stride = layout.strides[0];
        cut();
    }

    /// t itself if its order is the layout's and the kernels know steps, else a copy.
    Tensor placed(const Tensor& t, int64_t& step) const {
        step = t.is_cuda() ? layout.step_of(t) : -1;
        if (step >= 0) return t;
        step = layout.side_by_side ? t.size(0) * layout.unit() : layout.unit();
        return layout.arranged(t);
    }
    Tensor result() const { return layout.empty(x); }
    /// A finished result as x came, which a CPU does not write.
    Tensor finished(const Tensor& y) const {
        if (given.side_by_side == layout.side_by_side || y.dim() < 3) return y;
        Tensor copy = given.empty(y);
        torch::stable::copy_(copy, y);
        return copy;
    }

    /// [B, C] of x's dtype, or on CUDA all of them of that of its sums.
    const void* channel_parameter(const Checker& check, const OptionalTensor& in, const char* name,
                                  OptionalTensor& kept) {
        if (!in.has_value()) return nullptr;
        if (!given_parameters) args.wide_parameters = x.is_cuda() && in->scalar_type() != x.scalar_type();
        given_parameters = true;
        check.dtype(*in, name, args.wide_parameters ? accumulator_of(x) : x.scalar_type());
        check.same_device(*in, name, x);
        check.shape(*in, name, {x.size(0), layout.channels});
        kept = packed(in);
        return kept->data_ptr();
    }

    const void* like_x(const Checker& check, const OptionalTensor& in, const char* name, OptionalTensor& kept,
                       int64_t& stride, int64_t& step) const {
        if (!in.has_value()) return nullptr;
        check.same_kind(*in, name, x);
        check.same_shape(*in, name, x);
        kept = placed(*in, step);
        stride = model_stride(*kept);
        return kept->data_ptr();
    }

    /// Arguments of every backward pass.
    void take_gradient(const Checker& check, const Tensor& grad_in, const OptionalTensor& weight_in,
                       const OptionalTensor& bias_in, const Tensor& statistics_in) {
        args.weight = channel_parameter(check, weight_in, "weight", weight);
        args.bias = channel_parameter(check, bias_in, "bias", bias);
        check.dtype(statistics_in, "statistics", accumulator_of(x));
        check.same_device(statistics_in, "statistics", x);
        check.shape(statistics_in, "statistics", {3, x.size(0), layout.channels});
        statistics = packed(statistics_in);
        args.statistics = statistics->data_ptr();
        args.grad = like_x(check, grad_in, "grad", grad, args.grad_stride, args.grad_step);
    }

    Tensor of_channels() const {
        return args.wide_parameters ? new_accumulator(x, {x.size(0), layout.channels})
                                    : new_tensor(x, {x.size(0), layout.channels});
    }

  private:
    bool given_parameters = false;

    void cut() {
        const int64_t elements = layout.batch * layout.channels * layout.inner;
        args.inner = layout.channels_last ? 1 : layout.inner;
        args.planes = !layout.channels_last && layout.inner >= kPlane;
        int64_t columns = layout.inner;
        if (!args.planes) {
            const int64_t unit = layout.channels * args.inner;
            columns = unit > 0 ? columns_of_row(unit, elements / unit) : 0;
        }
        args.rows = cut_rows(x.size(0), elements, columns, columns <= 2 * kColumns ? 16384 : 65536);
    }
};

template <class Backend>
struct BatchNormOperators {
    /// (y, [mean, 1 / deviation, unbiased variance]); a given mean and variance are used and returned.
    static std::tuple<Tensor, Tensor> forward(const Tensor& x, OptionalTensor weight, OptionalTensor bias,
                                              OptionalTensor residual, OptionalTensor mean, OptionalTensor variance,
                                              double eps, std::string activation, double slope) {
        const Checker check("batch_norm_act");
        BatchNormInputs in(check, x, eps, activation, slope);
        STD_TORCH_CHECK(mean.has_value() == variance.has_value(),
                        "batch_norm_act: mean and variance go together: pass both or neither");
        BatchNormArguments& args = in.args;
        args.weight = in.channel_parameter(check, weight, "weight", in.weight);
        args.bias = in.channel_parameter(check, bias, "bias", in.bias);
        args.given_mean = in.channel_parameter(check, mean, "mean", in.mean);
        args.given_variance = in.channel_parameter(check, variance, "variance", in.variance);
        args.residual = in.like_x(check, residual, "residual", in.residual, args.residual_stride, args.residual_step);
        args.training = !mean.has_value();
        Tensor y = in.result(), statistics = new_accumulator(x, {3, x.size(0), in.layout.channels});
        args.y = y.data_ptr();
        args.statistics = statistics.data_ptr();
        Backend::forward(args, x);
        return {in.finished(y), statistics};
    }

    /// The same of a batch in training, into y and statistics, which the caller makes; the running statistics, of the type
    /// of sums, take the batch's in.
    static void running(const Tensor& y, const Tensor& statistics, const Tensor& running_mean,
                        const Tensor& running_variance, const Tensor& x, OptionalTensor weight, OptionalTensor bias,
                        OptionalTensor residual, double eps, std::string activation, double slope, double momentum) {
        take_batch(Checker("batch_norm_act_running_"), y, statistics, running_mean, running_variance, x, weight, bias,
                   residual, eps, activation, slope, momentum, nullptr);
    }

    /// The same, and the batches that each model has `tracked` [B] are one more.
    static void counted(const Tensor& y, const Tensor& statistics, const Tensor& running_mean,
                        const Tensor& running_variance, const Tensor& tracked, const Tensor& x, OptionalTensor weight,
                        OptionalTensor bias, OptionalTensor residual, double eps, std::string activation, double slope,
                        double momentum) {
        const Checker check("batch_norm_act_counted_");
        check.dtype(tracked, "tracked", ScalarType::Long);
        check.same_device(tracked, "tracked", x);
        check.at_least(x, "x", 1);
        check.shape(tracked, "tracked", {x.size(0)});
        STD_TORCH_CHECK(tracked.is_contiguous(), check.op(), ": tracked must be contiguous");
        take_batch(check, y, statistics, running_mean, running_variance, x, weight, bias, residual, eps, activation,
                   slope, momentum, static_cast<int64_t*>(tracked.data_ptr()));
    }

    static void take_batch(const Checker& check, const Tensor& y, const Tensor& statistics, const Tensor& running_mean,
                           const Tensor& running_variance, const Tensor& x, const OptionalTensor& weight,
                           const OptionalTensor& bias, const OptionalTensor& residual, double eps,
                           const std::string& activation, double slope, double momentum, int64_t* tracked) {
        BatchNormInputs in(check, x, eps, activation, slope);
        BatchNormArguments& args = in.args;
        const auto address = [&](const Tensor& t, const char* name, std::initializer_list<int64_t> sizes) {
            check.dtype(t, name, accumulator_of(x));
            check.same_device(t, name, x);
            check.shape(t, name, sizes);
            STD_TORCH_CHECK(t.is_contiguous(), check.op(), ": ", name, " must be contiguous");
            return t.data_ptr();
        };
        args.weight = in.channel_parameter(check, weight, "weight", in.weight);
        args.bias = in.channel_parameter(check, bias, "bias", in.bias);
        args.residual = in.like_x(check, residual, "residual", in.residual, args.residual_stride, args.residual_step);
        args.training = true;
        args.momentum = momentum;
        args.tracked = tracked;
        args.running_mean = address(running_mean, "running_mean", {x.size(0), in.layout.channels});
        args.running_variance = address(running_variance, "running_variance", {x.size(0), in.layout.channels});
        args.statistics = address(statistics, "statistics", {3, x.size(0), in.layout.channels});
        check.same_kind(y, "y", x);
        check.same_shape(y, "y", x);
        const bool direct = in.layout.lies_as_made(y);
        const Tensor result = direct ? y : in.result();
        args.y = result.data_ptr();
        Backend::forward(args, x);
        Backend::take_in(args);
        if (!direct) {
            Tensor to = y;
            torch::stable::copy_(to, result);
        }
    }

    /// [mean, 1 / deviation, unbiased variance] of the batch.
    static Tensor statistics(const Tensor& x, double eps) {
        const Checker check("batch_norm_statistics");
        BatchNormInputs in(check, x, eps, "none", 0.0);
        Tensor found = new_accumulator(x, {3, x.size(0), in.layout.channels});
        in.args.training = true;
        in.args.statistics = found.data_ptr();
        Backend::forward(in.args, x);
        return found;
    }

    /// (dx, dweight, dbias, dresidual); dresidual is empty [0] without a residual.
    static std::tuple<Tensor, Tensor, Tensor, Tensor> backward(const Tensor& grad, const Tensor& x,
                                                               OptionalTensor weight, OptionalTensor bias,
                                                               OptionalTensor residual, const Tensor& statistics,
                                                               bool training, std::string activation, double slope) {
        const Checker check("batch_norm_act_backward");
        BatchNormInputs in(check, x, 0.0, activation, slope);
        in.take_gradient(check, grad, weight, bias, statistics);
        BatchNormArguments& args = in.args;
        args.residual = in.like_x(check, residual, "residual", in.residual, args.residual_stride, args.residual_step);
        args.training = training;
        Tensor dx = in.result(), dweight = in.of_channels(), dbias = in.of_channels();
        Tensor dresidual = residual.has_value() ? in.result() : new_tensor(x, {0});
        args.dx = dx.data_ptr();
        args.dweight = dweight.data_ptr();
        args.dbias = dbias.data_ptr();
        args.dresidual = dresidual.data_ptr();
        Backend::backward(args, x);
        return {in.finished(dx), dweight, dbias, in.finished(dresidual)};
    }

    /// (dweight, dbias) of training, where x needs no gradient.
    static std::tuple<Tensor, Tensor> backward_parameters(const Tensor& grad, const Tensor& x, OptionalTensor weight,
                                                          OptionalTensor bias, const Tensor& statistics,
                                                          std::string activation, double slope) {
        const Checker check("batch_norm_act_backward_parameters");
        BatchNormInputs in(check, x, 0.0, activation, slope);
        in.take_gradient(check, grad, weight, bias, statistics);
        Tensor dweight = in.of_channels(), dbias = in.of_channels();
        in.args.training = true;
        in.args.dweight = dweight.data_ptr();
        in.args.dbias = dbias.data_ptr();
        Backend::backward(in.args, x);
        return {dweight, dbias};
    }

    static void implement(torch::stable::detail::StableLibrary& m) {
        m.impl("batch_norm_act", TORCH_BOX(&forward));
        m.impl("batch_norm_act_running_", TORCH_BOX(&running));
        m.impl("batch_norm_act_counted_", TORCH_BOX(&counted));
        m.impl("batch_norm_act_backward", TORCH_BOX(&backward));
        m.impl("batch_norm_statistics", TORCH_BOX(&statistics));
    }
};

}  // namespace dnnsuite::fused
