// SPDX-License-Identifier: MIT
// Arguments of the kernels of the norms over channels and rows, and of the maximum; see arguments.hpp.
#pragma once

#include "fused/arguments.hpp"
#include "fused/math/norm_activation.hpp"

namespace dnnsuite::fused {

/// y = activation((x - mean) / sqrt(var + eps) * weight + bias + residual), statistics per channel. A row is either some
/// columns, column j of channel (j / inner) % channels, or (planes) one plane of channel row % channels. x, residual and
/// grad may lie anywhere from model to model (*_stride, in elements). On a CPU a model's numbers are packed, and so is
/// what is written; on CUDA its units (samples, or pixels with the channels last) lie anywhere, *_step apart.
struct BatchNormArguments {
    DType dtype;
    NormActivation activation;
    double slope, eps;
    bool planes, training;
    bool streams;  // CPU: y or dx is larger than the caches
    int64_t channels, inner;
    Rows rows;
    int64_t x_stride, residual_stride, grad_stride;
    int64_t x_step, residual_step, grad_step, out_stride, out_step;  // CUDA; out: y, dx, dresidual
    bool wide_parameters;  // CUDA: weight, bias, their gradients and given statistics are of the type of sums
    const void *x, *residual, *grad, *weight, *bias;  // residual, weight and bias may be null
    const void *given_mean, *given_variance;          // of an evaluation; null in training
    void* y;                                          // null: only the statistics are wanted
    void* statistics;                                 // [3, B, C]: mean, 1 / deviation, unbiased variance
    void *dx, *dresidual, *dweight, *dbias;           // backward
    double momentum;
    void *running_mean, *running_variance;  // [B, C] of the type of sums, which take the batch's in; or null
    int64_t* tracked;                       // [B] batches that they have taken in; or null
    DNNSUITE_HD int64_t unit() const { return channels * inner; }
    int64_t values_per_channel() const { return channels > 0 ? rows.elements / channels : 0; }
};

/// y = x / sqrt(mean of x² + eps) * weight over each row.
struct RmsNormArguments {
    DType dtype;
    Rows rows;
    double eps;
    bool shared_x;                  // CPU: x is [rows, columns], the same for all models
    const void *x, *weight, *grad;  // weight [B, columns] or null
    void *y, *dx;                   // dx (CPU) null: only the weight's gradient is wanted
    void* weight_sums;              // backward: [B, tasks_per_model, columns]
};

/// x [B, N, C, inner], statistics over each sample's `groups` of channels.
struct GroupNormArguments {
    DType dtype;
    int64_t columns;  // CPU: x, grad, y and dx are [B, N, inner, C], so many columns to a row; 0: [B, N, C, inner]
    bool streams;     // CPU, with columns: y and dx are larger than the caches
    int64_t samples;  // CPU, backward: of a task, which adds up what they bring to the parameters' gradients
    int64_t models, batch, channels, inner, groups;
    double eps;
    const void *x, *weight, *bias, *grad;  // weight and bias [B, C] or null
    void *y, *dx;
    void *dweight, *dbias;  // [B, C]

    int64_t tasks_per_model() const { return (batch + samples - 1) / samples; }
};

/// The largest of `count` numbers and where it is: x [B, outer, count, inner], values and indices [B, outer, inner].
struct MaxArguments {
    DType dtype;
    int64_t models, outer, count, inner;
    const void *x, *sign;  // sign [B, inner], 1 or -1, which x is taken times; or null
    void* values;
    int64_t* indices;
};

}  // namespace dnnsuite::fused
