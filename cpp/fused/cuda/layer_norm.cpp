// SPDX-License-Identifier: MIT
#include "fused/layer_norm_operators.hpp"

#include "fused/cuda/device.hpp"

namespace dnnsuite::fused {
namespace {

struct Backend : CudaBackend {
    static void forward(const LayerNormArguments& args, const Tensor& like) {
        on_device(like, [&](cudaStream_t stream) { return kernels::layer_norm_forward(args, stream); });
    }
    static void backward(LayerNormArguments args, const Tensor& like) {
        const Tensor statistics =
            new_accumulator(like, {args.rows.models * args.rows.rows, kernels::layer_norm_room(args)});
        args.statistics = statistics.data_ptr();
        on_device(like, [&](cudaStream_t stream) { return kernels::layer_norm_backward(args, stream); });
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CUDA, m) { LayerNormOperators<Backend>::implement(m); }

}  // namespace dnnsuite::fused
