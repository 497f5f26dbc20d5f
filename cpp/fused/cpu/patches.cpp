// SPDX-License-Identifier: MIT
// patches and add_patches: with them a convolution of few pixels or few channels, and a transposed one, is a product.
// On CUDA torch's own convolution serves.
#include "fused/cpu/parallel.hpp"
#include "fused/cpu/patches_kernel.hpp"

namespace dnnsuite::fused {
namespace {

struct Steps {
    int64_t kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w;
};

int64_t windows(int64_t input, int64_t kernel, int64_t stride, int64_t padding) {
    return input + 2 * padding < kernel ? 0 : (input + 2 * padding - kernel) / stride + 1;
}

PatchArguments arguments(const Checker& check, const Tensor& t, const Steps& s) {
    STD_TORCH_CHECK(t.dim() == 5, check.op(), ": the first argument must have five dimensions, the first of them the ",
                    "models, not shape ", shape_text(t));
    const bool positive =
        s.kernel_h > 0 && s.kernel_w > 0 && s.stride_h > 0 && s.stride_w > 0 && s.padding_h >= 0 && s.padding_w >= 0;
    STD_TORCH_CHECK(positive, check.op(), ": kernel and stride must be positive and padding not negative");
    PatchArguments args{};
    args.dtype = check.floating(t, "the first argument");
    args.images = t.size(0) * t.size(1);
    args.from = t.data_ptr();
    return args;
}

/// x [B, N, H, W, C] to [B, N, OH, OW, KH * KW * C], zeros where a window sees padding.
Tensor cut_patches(const Tensor& x, int64_t kernel_h, int64_t kernel_w, int64_t stride_h, int64_t stride_w,
                   int64_t padding_h, int64_t padding_w) {
    const Checker check("patches");
    const Tensor input = packed(x);
    PatchArguments args = arguments(check, input, {kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w});
    const int64_t height = windows(x.size(2), kernel_h, stride_h, padding_h);
    const int64_t width = windows(x.size(3), kernel_w, stride_w, padding_w);
    STD_TORCH_CHECK(height > 0 && width > 0, "patches: the windows do not fit into ", shape_text(x));
    args.channels = x.size(4);
    args.height = {x.size(2), height, kernel_h, stride_h, padding_h, 1};
    args.width = {x.size(3), width, kernel_w, stride_w, padding_w, 1};
    Tensor y = new_tensor(x, {x.size(0), x.size(1), height, width, kernel_h * kernel_w * x.size(4)});
    args.to = y.data_ptr();
    const auto kernel = DNNSUITE_SELECT(patches);
    run_tasks(args.images * height, width * y.size(4), 0,
              [&](int64_t begin, int64_t end, void*) { kernel(args, begin, end); });
    return y;
}

/// patches [B, N, OH, OW, KH * KW * C] to the sums of their pixels, [B, N, height, width, C].
Tensor put_patches(const Tensor& given, int64_t height, int64_t width, int64_t kernel_h, int64_t kernel_w,
                   int64_t stride_h, int64_t stride_w, int64_t padding_h, int64_t padding_w) {
    const Checker check("add_patches");
    const Tensor t = packed(given);
    PatchArguments args = arguments(check, t, {kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w});
    STD_TORCH_CHECK(height > 0 && width > 0 && t.size(4) % (kernel_h * kernel_w) == 0, "add_patches: no image of ",
                    height, " x ", width, " has windows of ", kernel_h, " x ", kernel_w, " pixels in ", shape_text(t));
    args.channels = t.size(4) / (kernel_h * kernel_w);
    args.height = {height, t.size(2), kernel_h, stride_h, padding_h, 1};
    args.width = {width, t.size(3), kernel_w, stride_w, padding_w, 1};
    Tensor y = new_tensor(t, {t.size(0), t.size(1), height, width, args.channels});
    args.to = y.data_ptr();
    const auto kernel = DNNSUITE_SELECT(add_patches);
    run_tasks(args.images * height, width * args.channels * kernel_h, 0,
              [&](int64_t begin, int64_t end, void*) { kernel(args, begin, end); });
    return y;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) {
    m.impl("patches", TORCH_BOX(&cut_patches));
    m.impl("add_patches", TORCH_BOX(&put_patches));
}

}  // namespace dnnsuite::fused
