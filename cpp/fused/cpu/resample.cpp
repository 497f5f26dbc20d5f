// SPDX-License-Identifier: MIT
// resample and its gradient: upsampling, padding that repeats pixels, and means of uneven windows, channels last. On CUDA
// torch's own functions serve.
#include "fused/cpu/resample_kernel.hpp"

#include "fused/cpu/cache.hpp"
#include "fused/cpu/parallel.hpp"
#include "fused/cpu/resample_taps.hpp"

namespace dnnsuite::fused {
namespace {

TapsView view(const LineTaps& taps) {
    return {taps.starts.data(), taps.sources.data(), taps.weights.data(), taps.runs.data(),
            static_cast<int64_t>(taps.runs.size())};
}

void check_line(const Resampling& line) {
    STD_TORCH_CHECK(line.inputs > 0 && line.outputs > 0 && line.step >= 0, "resample: no line of ", line.outputs,
                    " pixels is made of ", line.inputs, " with a step of ", line.step);
    const int64_t most = std::max(line.before, line.outputs - line.inputs - line.before);
    STD_TORCH_CHECK(line.kind != Resample::kReflect || most < line.inputs, "resample: ", line.inputs,
                    " pixels cannot be reflected over ", most);
}

LineTaps taps(const Resampling& line, DType dtype) {
    check_line(line);
    return dtype == DType::kFloat64 ? taps_of<double>(line) : taps_of<float>(line);
}

/// x [B, N, H, W, C] by two tables.
Tensor run(const Tensor& x, DType dtype, LineTaps rows, LineTaps columns) {
    ResampleArguments args{};
    args.dtype = dtype;
    args.height = x.size(2), args.width = x.size(3), args.channels = x.size(4);
    find_runs(rows), find_runs(columns);
    args.rows = view(rows), args.columns = view(columns);
    Tensor y = new_tensor(x, {x.size(0), x.size(1), args.rows.outputs, args.columns.outputs, args.channels});
    args.from = x.data_ptr(), args.to = y.data_ptr();
    const auto kernel = DNNSUITE_SELECT(resample);
    args.streams = leaves_caches(y.numel() * (dtype == DType::kFloat64 ? 8 : 4));
    const int64_t row = args.columns.outputs * args.channels;
    run_tasks(x.size(0) * x.size(1) * args.rows.outputs, row, args.scratch(),
              [&](int64_t begin, int64_t end, void* scratch) { kernel(args, begin, end, scratch); });
    return y;
}

DType check(const char* op, const Tensor& t) {
    STD_TORCH_CHECK(t.dim() == 5, op,
                    ": the first argument must have five dimensions, the first of them the models, "
                    "not shape ",
                    shape_text(t));
    return Checker(op).floating(t, "the first argument");
}

/// x [B, N, H, W, C] to [B, N, height, width, C].
Tensor resample_images(const Tensor& given, std::string kind, int64_t height, int64_t width, double step_h,
                       double step_w, int64_t before_h, int64_t before_w) {
    const DType dtype = check("resample", given);
    const Tensor x = packed(given);
    return run(x, dtype, taps({resample_kind(kind), x.size(2), height, step_h, before_h}, dtype),
               taps({resample_kind(kind), x.size(3), width, step_w, before_w}, dtype));
}

/// The gradient of images of `height` x `width` from that of the result.
Tensor resample_gradient(const Tensor& given, std::string kind, int64_t height, int64_t width, double step_h,
                         double step_w, int64_t before_h, int64_t before_w) {
    const DType dtype = check("resample_backward", given);
    const Tensor grad = packed(given);
    return run(grad, dtype,
               transposed(taps({resample_kind(kind), height, grad.size(2), step_h, before_h}, dtype), height),
               transposed(taps({resample_kind(kind), width, grad.size(3), step_w, before_w}, dtype), width));
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CPU, m) {
    m.impl("resample", TORCH_BOX(&resample_images));
    m.impl("resample_backward", TORCH_BOX(&resample_gradient));
}

}  // namespace dnnsuite::fused
