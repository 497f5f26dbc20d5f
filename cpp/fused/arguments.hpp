// SPDX-License-Identifier: MIT
// What a kernel is told: raw pointers and sizes, the same for the CPU (cpu/) and CUDA (kernels/). Tensors are
// contiguous. A model's work is cut into tasks of `rows_per_task` rows, a number that depends on the shape alone:
// sums over rows are formed per task and then over tasks in order, so no result depends on the thread count.
#pragma once

#include <cstdint>

#include "fused/math/dropout.hpp"

namespace dnnsuite::fused {

enum class DType : int { kFloat32, kFloat64, kBFloat16, kFloat16 };

/// How the rows of `models` arrays [elements] are cut. The last row may be short when there is no bias.
struct Rows {
    int64_t models = 0, elements = 0, columns = 1, rows = 0, rows_per_task = 1, tasks_per_model = 0;
    int64_t tasks() const { return models * tasks_per_model; }
};

/// y = residual + dropout(activation(x + bias)), and backwards grad -> dx with sums of dx over each task's rows.
struct PointwiseArguments {
    DType dtype;
    Activation activation;
    Rows rows;
    const void *x, *bias, *residual, *grad;  // bias [B, columns]; bias and residual may be null
    void *y;                                 // forward: result; backward: dx
    void *bias_sums;                         // backward: [B, tasks_per_model, columns] or null
    DropoutArguments dropout;
};

/// s = residual + dropout(x + bias) or s = x (residual null); y = (s - mean) / sqrt(var + eps) * weight + bias.
struct LayerNormArguments {
    DType dtype;
    Rows rows;
    double eps;
    const void *x, *bias, *residual, *weight, *norm_bias, *grad;
    void *y;                 // forward only
    void *dx, *dresidual;    // backward; dresidual null when there is no residual
    void *weight_sums, *norm_bias_sums, *bias_sums;  // backward: [B, tasks_per_model, columns]; bias_sums may be null
    DropoutArguments dropout;
};

}  // namespace dnnsuite::fused
