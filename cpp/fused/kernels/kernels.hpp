// SPDX-License-Identifier: MIT
// The CUDA kernels: raw pointers, sizes, a stream. This folder includes nothing of torch. Sums over rows
// (`*_sums` of the arguments, and the losses) are formed in float, or double for double, whatever the dtype.
// Every sum has a fixed order: results do not depend on the number of models or on scheduling.
#pragma once

#include <cuda_runtime_api.h>

#include "fused/arguments.hpp"
#include "fused/math/gradient.hpp"
#include "fused/math/optimizer_arguments.hpp"
#include "fused/norm_arguments.hpp"

namespace dnnsuite::fused::kernels {

cudaError_t pointwise_forward(const PointwiseArguments& args, cudaStream_t stream);
cudaError_t pointwise_backward(const PointwiseArguments& args, cudaStream_t stream);

/// Numbers of room that the backward pass needs for each row in `statistics`, of the type that sums are kept in.
int64_t layer_norm_room(const LayerNormArguments& args);
cudaError_t layer_norm_forward(const LayerNormArguments& args, cudaStream_t stream);
cudaError_t layer_norm_backward(const LayerNormArguments& args, cudaStream_t stream);

/// Without a y only the statistics.
cudaError_t batch_norm_forward(const BatchNormArguments& args, cudaStream_t stream);
/// `sums`: room for 2 numbers of each model's channel, in the type that sums are kept in.
cudaError_t batch_norm_backward(const BatchNormArguments& args, void* sums, cudaStream_t stream);

/// `roots`: room for a number of each row, in the type that sums are kept in.
cudaError_t rms_norm_forward(const RmsNormArguments& args, cudaStream_t stream);
cudaError_t rms_norm_backward(const RmsNormArguments& args, void* roots, cudaStream_t stream);

/// `statistics`: room for 2 numbers of each sample's group, in the type that sums are kept in.
cudaError_t group_norm_forward(const GroupNormArguments& args, cudaStream_t stream);
cudaError_t group_norm_backward(const GroupNormArguments& args, void* statistics, cudaStream_t stream);

cudaError_t max_over(const MaxArguments& args, cudaStream_t stream);

/// Adds the tasks' sums [B, tasks_per_model, columns] in order into `total` [B, columns] of the dtype.
cudaError_t add_task_sums(const void* sums, void* total, const Rows& rows, DType dtype, cudaStream_t stream);

cudaError_t attention_forward(const AttentionArguments& args, cudaStream_t stream);
cudaError_t attention_backward(const AttentionArguments& args, cudaStream_t stream);

/// Each writes what its arguments name: y, dx, or the tasks' sums.
cudaError_t depthwise_forward(const DepthwiseArguments& args, cudaStream_t stream);
cudaError_t depthwise_backward_input(const DepthwiseArguments& args, cudaStream_t stream);
cudaError_t depthwise_backward_weight(const DepthwiseArguments& args, cudaStream_t stream);

cudaError_t embedding_forward(const EmbeddingArguments& args, cudaStream_t stream);
cudaError_t embedding_backward(const EmbeddingArguments& args, cudaStream_t stream);

/// One time step.
cudaError_t recurrence_step_forward(const RecurrenceStepArguments& args, cudaStream_t stream);
cudaError_t recurrence_step_backward(const RecurrenceStepArguments& args, cudaStream_t stream);

/// `mean` divides by the number of rows that are not ignored.
cudaError_t cross_entropy_forward(const CrossEntropyArguments& args, cudaStream_t stream);
cudaError_t cross_entropy_reduce(const CrossEntropyArguments& args, bool mean, void* loss, cudaStream_t stream);
/// d loss / d row loss [B, R] of a gradient [B], or [B, R] if `per_row`.
cudaError_t cross_entropy_spread(const CrossEntropyArguments& args, bool mean, bool per_row, const void* grad,
                                 void* scale, cudaStream_t stream);
cudaError_t cross_entropy_backward(const CrossEntropyArguments& args, cudaStream_t stream);

cudaError_t optimizer_step(const OptimizerArguments& args, cudaStream_t stream);

/// Norms of models' gradients. `parts` is room for chunks * models doubles.
cudaError_t gradient_norms(const GradientArguments& args, double* parts, double* norms, cudaStream_t stream);

}  // namespace dnnsuite::fused::kernels
