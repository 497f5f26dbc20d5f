// SPDX-License-Identifier: MIT
#include "fused/rms_norm_operators.hpp"

#include "fused/cuda/device.hpp"

namespace dnnsuite::fused {
namespace {

struct Backend : CudaBackend {
    static void forward(const RmsNormArguments& args, const Tensor& like) {
        on_device(like, [&](cudaStream_t stream) { return kernels::rms_norm_forward(args, stream); });
    }
    static void backward(const RmsNormArguments& args, const Tensor& like) {
        const Tensor roots = new_accumulator(like, {args.rows.models, args.rows.rows});
        on_device(like,
                  [&](cudaStream_t stream) { return kernels::rms_norm_backward(args, roots.data_ptr(), stream); });
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CUDA, m) { RmsNormOperators<Backend>::implement(m); }

}  // namespace dnnsuite::fused
