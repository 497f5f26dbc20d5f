// SPDX-License-Identifier: MIT
#include "fused/batch_norm_operators.hpp"

#include "fused/cuda/device.hpp"

namespace dnnsuite::fused {
namespace {

struct Backend {
    static void forward(const BatchNormArguments& args, const Tensor& like) {
        on_device(like, [&](cudaStream_t stream) { return kernels::batch_norm_forward(args, stream); });
    }
    static void take_in(const BatchNormArguments&) {}  // the kernel of the statistics has
    static void backward(const BatchNormArguments& args, const Tensor& like) {
        const Tensor sums = new_accumulator(like, {args.rows.models, args.channels, 2});
        on_device(like,
                  [&](cudaStream_t stream) { return kernels::batch_norm_backward(args, sums.data_ptr(), stream); });
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CUDA, m) { BatchNormOperators<Backend>::implement(m); }

}  // namespace dnnsuite::fused
