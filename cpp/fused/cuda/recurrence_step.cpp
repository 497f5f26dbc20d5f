// SPDX-License-Identifier: MIT
#include "fused/recurrence_step_operators.hpp"

#include "fused/cuda/device.hpp"

namespace dnnsuite::fused {
namespace {

struct Backend {
    static void forward(const RecurrenceStepArguments& args, const Tensor& like) {
        on_device(like, [&](cudaStream_t stream) { return kernels::recurrence_step_forward(args, stream); });
    }
    static void backward(const RecurrenceStepArguments& args, const Tensor& like) {
        on_device(like, [&](cudaStream_t stream) { return kernels::recurrence_step_backward(args, stream); });
    }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(dnnsuite, CUDA, m) { RecurrenceStepOperators<Backend>::implement(m); }

}  // namespace dnnsuite::fused
