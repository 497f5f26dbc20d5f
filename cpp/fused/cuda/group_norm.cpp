// SPDX-License-Identifier: MIT
#include "fused/group_norm_operators.hpp"

#include "fused/cuda/device.hpp"

namespace dnnsuite::fused {
namespace {

struct Backend {
    static constexpr bool kChannelsLast = false;  // there is no kernel for it
    static void forward(const GroupNormArguments& args, const Tensor& like) {
        on_device(like, [&](cudaStream_t stream) { return kernels::group_norm_forward(args, stream); });
    }
    static void backward(const GroupNormArguments& args, const Tensor& like) {
        const Tensor statistics = new_accumulator(like, {args.models, args.batch, args.groups, 2});
        on_device(like, [&](cudaStream_t stream) {
            return kernels::group_norm_backward(args, statistics.data_ptr(), stream);
        });
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CUDA, m) { GroupNormOperators<Backend>::implement(m); }

}  // namespace dnnsuite::fused
