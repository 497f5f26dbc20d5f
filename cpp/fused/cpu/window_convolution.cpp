// SPDX-License-Identifier: MIT
// Convolutions that are quicker as products of windows, all models in one call. Images, filters and their gradients lie
// with the channels last in memory; what lies otherwise is copied. On CUDA torch's own convolution serves.
#include <tuple>
#include <vector>

#include "fused/cpu/parallel.hpp"
#include "fused/cpu/window_convolution_kernel.hpp"

namespace dnnsuite::fused {
namespace {

using Sizes = std::vector<int64_t>;

/// True if each model's part of t [B, N, C, H, W] or [B, N, C, D, H, W] lies packed in memory, channels last.
bool lies_last(const Tensor& t) {
    if (t.size(2) != 1 && t.stride(2) != 1) return false;
    int64_t step = t.size(2);
    for (int64_t d = t.dim() - 1; d > 0; --d) {
        if (d == 2) continue;
        if (t.size(d) != 1 && t.stride(d) != step) return false;
        step *= t.size(d);
    }
    return true;
}

/// t [B, N, C, H, W], or filters [B, O, I, KH, KW], as rows of channels [B, N, H, W, C], each model's packed; likewise
/// with D before H. Numbers that all models share stay shared.
Tensor channels_last(const Tensor& t, bool may_share) {
    const bool shared = may_share && t.size(0) > 1 && t.stride(0) == 0;
    const int64_t own = t.numel() / (t.size(0) > 0 ? t.size(0) : 1);
    if (lies_last(t) && (shared || t.size(0) < 2 || t.stride(0) == own)) return t;
    Tensor from = shared ? torch::stable::narrow(const_cast<Tensor&>(t), 0, 0, 1) : t;
    for (int64_t d = 2; d + 1 < t.dim(); ++d) from = torch::stable::transpose(from, d, d + 1);
    return torch::stable::contiguous(from);
}

/// A new tensor [B, N, C, H, W] or [B, N, C, D, H, W] with the channels last in memory.
Tensor new_last(const Tensor& like, const Sizes& s) {
    const auto dims = static_cast<int64_t>(s.size());
    Sizes strides(s.size(), 1);
    int64_t step = s[2];
    for (int64_t d = dims - 1; d >= 0; --d)
        if (d != 2) strides[d] = step, step *= s[d];
    int32_t dtype = 0, device_type = 0, device_index = 0;
    aoti_torch_get_dtype(like.get(), &dtype);
    aoti_torch_get_device_type(like.get(), &device_type);
    aoti_torch_get_device_index(like.get(), &device_index);
    AtenTensorHandle handle = nullptr;
    const auto error =
        aoti_torch_empty_strided(dims, s.data(), strides.data(), dtype, device_type, device_index, &handle);
    STD_TORCH_CHECK(error == 0, "dnnsuite: no memory for the convolutions of ", s[0], " models");
    return Tensor(handle);
}

Window window(const Checker& check, int64_t input, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
    STD_TORCH_CHECK(kernel > 0 && stride > 0 && padding >= 0 && dilation > 0, check.op(),
                    ": kernel, stride and dilation must be positive and padding not negative");
    const int64_t room = input + 2 * padding - dilation * (kernel - 1) - 1;
    STD_TORCH_CHECK(input > 0 && room >= 0, check.op(), ": filters of ", kernel, " do not fit into ", input,
                    " pixels with padding ", padding);
    return {input, room / stride + 1, kernel, stride, padding, dilation};
}

/// Sizes of the convolution of x [B, N, I, H, W] with filters [B, O, I / groups, KH, KW], or with D before H.
WindowConvolutionArguments geometry(const Checker& check, const Tensor& x, const Tensor& weight, const Sizes& stride,
                                    const Sizes& padding, const Sizes& dilation, int64_t groups) {
    STD_TORCH_CHECK((x.dim() == 5 || x.dim() == 6) && weight.dim() == x.dim(), check.op(),
                    ": x must be [B, N, I, H, W] and weight [B, O, I / groups, KH, KW], or with D before H, not ",
                    shape_text(x), " and ", shape_text(weight));
    const auto sides = static_cast<size_t>(x.dim() - 3);
    STD_TORCH_CHECK(stride.size() == sides && padding.size() == sides && dilation.size() == sides, check.op(),
                    ": stride, padding and dilation are ", sides == 2 ? "two" : "three", " numbers each");
    const bool even = groups > 0 && x.size(2) % groups == 0 && weight.size(1) % groups == 0;
    STD_TORCH_CHECK(even && weight.size(0) == x.size(0) && weight.size(2) == x.size(2) / groups, check.op(),
                    ": filters ", shape_text(weight), " in ", groups, " groups do not fit images ", shape_text(x));
    check.same_kind(weight, "weight", x);
    WindowConvolutionArguments args{};
    args.dtype = check.floating(x, "x");
    args.models = x.size(0), args.samples = x.size(1), args.inputs = x.size(2);
    args.outputs = weight.size(1), args.groups = groups;
    args.last_sample = args.samples, args.last_output = args.group_outputs();
    Window* const windows[] = {&args.planes, &args.height, &args.width};
    args.planes = {1, 1, 1, 1, 0, 1};
    for (size_t i = 0; i < sides; ++i) {
        const auto d = static_cast<int64_t>(i) + 3;
        *windows[3 - sides + i] = window(check, x.size(d), weight.size(d), stride[i], padding[i], dilation[i]);
    }
    return args;
}

Sizes sizes_of(const Tensor& t) {
    Sizes found;
    for (int64_t d = 0; d < t.dim(); ++d) found.push_back(t.size(d));
    return found;
}

/// The result's, of as many dimensions as the images have.
Sizes result_sizes(const WindowConvolutionArguments& args, int64_t dims) {
    Sizes found{args.models, args.samples, args.outputs};
    if (dims == 6) found.push_back(args.planes.output);
    found.insert(found.end(), {args.height.output, args.width.output});
    return found;
}

/// x, laid out, becomes what the kernel reads.
void set_images(WindowConvolutionArguments& args, const Tensor& x) {
    args.x = x.data_ptr();
    args.x_model = x.size(0) == args.models && (x.size(0) < 2 || x.stride(0) != 0)
                       ? args.samples * args.inputs * args.input_pixels()
                       : 0;
}

/// The parts into which each model's work is cut, where there are not as many models for each thread. The bits do not
/// depend on it: a sum lies within one part.
int64_t parts_of(const WindowConvolutionArguments& args) {
    const int64_t threads = torch::stable::get_num_threads();
    return args.models % threads == 0 ? 1 : (2 * threads + args.models - 1) / args.models;
}

/// Part `part` of `parts` of [0, count).
void cut(int64_t count, int64_t part, int64_t parts, int64_t& first, int64_t& last) {
    first = count * part / parts, last = count * (part + 1) / parts;
}

enum class Cut { kSamples, kOutputs };

template <class Kernel>
void run(const WindowConvolutionArguments& all, Cut by, int64_t parts, const Kernel& kernel) {
    const int64_t work = all.pixels() * all.outputs * all.depth();
    if (parts == 1)
        return run_tasks(all.models, work, window_scratch(all),
                         [&](int64_t begin, int64_t end, void* scratch) { kernel(all, begin, end, scratch); });
    run_tasks(all.models * parts, work / parts, window_scratch(all), [&](int64_t begin, int64_t end, void* scratch) {
        for (int64_t task = begin; task < end; ++task) {
            WindowConvolutionArguments some = all;
            if (by == Cut::kSamples)
                cut(all.samples, task % parts, parts, some.first_sample, some.last_sample);
            else
                cut(all.group_outputs(), task % parts, parts, some.first_output, some.last_output);
            if (some.first_sample < some.last_sample && some.first_output < some.last_output)
                kernel(some, task / parts, task / parts + 1, scratch);
        }
    });
}

/// The images' gradients by samples and the filters' by outputs, or both at once, with windows that are cut once.
void run_backward(const WindowConvolutionArguments& args) {
    const auto kernel = DNNSUITE_SELECT(window_convolution_backward);
    const int64_t parts = parts_of(args);
    if (parts == 1) return run(args, Cut::kSamples, 1, kernel);
    WindowConvolutionArguments images = args, filters = args;
    images.dweight = images.dbias = filters.dx = nullptr;
    if (images.dx != nullptr) run(images, Cut::kSamples, parts, kernel);
    if (filters.dweight != nullptr || filters.dbias != nullptr) run(filters, Cut::kOutputs, parts, kernel);
}

bool has_work(const WindowConvolutionArguments& args) {
    return args.models > 0 && args.pixels() > 0 && args.inputs > 0 && args.outputs > 0;
}

Tensor convolve_windows(const Tensor& x_in, const Tensor& weight_in, OptionalTensor bias_in, Sizes stride,
                        Sizes padding, Sizes dilation, int64_t groups) {
    const Checker check("window_convolution");
    WindowConvolutionArguments args = geometry(check, x_in, weight_in, stride, padding, dilation, groups);
    const Tensor x = channels_last(x_in, true), weight = channels_last(weight_in, false);
    const OptionalTensor bias = packed(bias_in);
    if (bias.has_value()) {
        check.same_kind(*bias, "bias", x);
        check.shape(*bias, "bias", {args.models, args.outputs});
    }
    Tensor y = new_last(x, result_sizes(args, x_in.dim()));
    set_images(args, x);
    args.weight = weight.data_ptr(), args.bias = pointer(bias), args.y = y.data_ptr();
    if (has_work(args)) run(args, Cut::kSamples, parts_of(args), DNNSUITE_SELECT(window_convolution));
    return y;
}

/// Zeros where there is nothing to add up.
Tensor cleared_if(bool nothing, Tensor t) { return nothing ? torch::stable::zero_(t) : t; }

/// A gradient that is not needed comes as an empty tensor.
std::tuple<Tensor, Tensor, Tensor> convolve_windows_backward(const Tensor& grad_in, const Tensor& x_in,
                                                             const Tensor& weight_in, Sizes stride, Sizes padding,
                                                             Sizes dilation, int64_t groups, bool needs_x,
                                                             bool needs_weight, bool needs_bias) {
    const Checker check("window_convolution_backward");
    WindowConvolutionArguments args = geometry(check, x_in, weight_in, stride, padding, dilation, groups);
    check.same_kind(grad_in, "grad", x_in);
    STD_TORCH_CHECK(sizes_of(grad_in) == result_sizes(args, x_in.dim()), check.op(),
                    ": grad must have the result's shape, not ", shape_text(grad_in));
    const Tensor x = channels_last(x_in, true), weight = channels_last(weight_in, false);
    const Tensor grad = channels_last(grad_in, false), none = new_tensor(x, {0});
    const bool nothing = !has_work(args);
    const auto like = [&](bool needed, const Tensor& t) {
        return needed ? cleared_if(nothing, new_last(x, sizes_of(t))) : none;
    };
    const Tensor dx = like(needs_x, x_in), dweight = like(needs_weight, weight_in);
    const Tensor dbias = needs_bias ? cleared_if(nothing, new_tensor(x, {args.models, args.outputs})) : none;
    set_images(args, x);
    args.weight = weight.data_ptr(), args.grad = grad.data_ptr();
    args.dx = needs_x ? dx.data_ptr() : nullptr;
    args.dweight = needs_weight ? dweight.data_ptr() : nullptr;
    args.dbias = needs_bias ? dbias.data_ptr() : nullptr;
    if (!nothing) run_backward(args);
    return {dx, dweight, dbias};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) {
    m.impl("window_convolution", TORCH_BOX(&convolve_windows));
    m.impl("window_convolution_backward", TORCH_BOX(&convolve_windows_backward));
}

}  // namespace dnnsuite::fused
