// SPDX-License-Identifier: MIT
// Arguments of a kernel: raw pointers and sizes, the same for the CPU (cpu/) and CUDA (kernels/). Tensors are
// contiguous. A model's work is cut into tasks of `rows_per_task` rows, a number that depends on the shape alone:
// sums over rows are formed per task and then over tasks in order, so no result depends on the thread count.
#pragma once

#include <cstdint>

#include "fused/math/dropout.hpp"
#include "fused/math/recurrence.hpp"

namespace dnnsuite::fused {

enum class DType : int { kFloat32, kFloat64, kBFloat16, kFloat16 };

/// Cut of the rows of `models` arrays [elements]. The last row may be short when there is no bias.
struct Rows {
    int64_t models = 0, elements = 0, columns = 1, rows = 0, rows_per_task = 1, tasks_per_model = 0;
    int64_t tasks() const { return models * tasks_per_model; }
};

/// Cuts `models` arrays of `elements` numbers into rows and rows into tasks of about `per_task` numbers.
inline Rows cut_rows(int64_t models, int64_t elements, int64_t columns, int64_t per_task = 16384) {
    Rows rows;
    rows.models = models;
    rows.elements = elements;
    rows.columns = columns > 0 ? columns : 1;
    rows.rows = (elements + rows.columns - 1) / rows.columns;
    rows.rows_per_task = per_task / rows.columns > 1 ? per_task / rows.columns : 1;
    // One task even without rows: it sets the sums to zero.
    rows.tasks_per_model = rows.rows > 0 ? (rows.rows + rows.rows_per_task - 1) / rows.rows_per_task : 1;
    return rows;
}

/// y = residual + dropout(activation(x + bias)), and backwards grad -> dx with sums of dx over each task's rows.
struct PointwiseArguments {
    DType dtype;
    Activation activation;
    Rows rows;
    const void *x, *bias, *residual, *grad;  // bias [B, columns]; bias and residual may be null
    void* y;                                 // forward: result; backward: dx
    void* bias_sums;                         // backward: [B, tasks_per_model, columns] or null
    DropoutArguments dropout;
};

/// s = residual + dropout(x + bias) or s = x (residual null); y = (s - mean) / sqrt(var + eps) * weight + bias.
struct LayerNormArguments {
    DType dtype;
    Rows rows;
    double eps;
    bool shared_x;  // CPU: x is [rows, columns], the same for all models
    const void *x, *bias, *residual, *weight, *norm_bias, *grad;
    void* y;               // forward only
    void *dx, *dresidual;  // backward; dresidual null when there is no residual, dx (CPU) when
                           // only the parameters' gradients are wanted
    void *weight_sums, *norm_bias_sums, *bias_sums;  // backward: [B, tasks_per_model, columns]; bias_sums may be null
    void* statistics;                                // CUDA, backward: room, see layer_norm_room
    DropoutArguments dropout;
};

/// logits [B, R, C], target [B, R]. Rows of `rows` are rows of logits.
struct CrossEntropyArguments {
    DType dtype;
    Rows rows;
    int64_t ignore_index;
    double label_smoothing;
    const void* logits;
    const int64_t* target;
    void *row_loss, *log_sum;  // forward: [B, R] each, in the dtype (float for 16-bit types)
    const void* scale;         // backward: [B, R], d loss / d row loss; same type
    const void* saved_log_sum;
    void* dlogits;
};

/// out[b, i] = weight[b, indices[b, i]]; weight [B, V, D], indices [B, count].
struct EmbeddingArguments {
    DType dtype;
    int64_t models, vocabulary, columns, count, index_stride;  // index_stride 0: shared by all models
    int64_t padding_idx;                                       // -1: none
    const void* weight;
    const int64_t* indices;
    void* out;         // forward [B, count, D]
    const void* grad;  // backward
    void* dweight;     // [B, V, D], every element written
};

/// softmax(q k^T / sqrt(d)) v of packed qkv [B, N, L, 3E]; out and its gradient are [B, N, L, E].
struct AttentionArguments {
    DType dtype;
    int64_t models, sequences, length, heads, head_dim;
    bool causal;
    const bool* ignored;  // [B, N, L] or null
    const void *qkv, *grad;
    void *out, *dqkv;
    DropoutArguments dropout;  // of the probabilities, elements in the order [N, H, L, L]
};

/// Taps between the positions of one dimension: input i = output * stride - padding + tap * dilation.
struct Window {
    int64_t input, output, kernel, stride, padding, dilation;
};

/// Depthwise convolution, channels last: x [B, N, H, W, C], weight [B, KH, KW, C], y [B, N, OH, OW, C]. A row is a
/// line of OW pixels; its gradient dx has lines of W pixels; the weight's is summed per task over lines of y.
struct DepthwiseArguments {
    DType dtype;
    Rows rows;  // lines of what is written; of y for the weight's gradient, with [KH * KW + 1, C] as columns of sums
    int64_t channels, x_stride, grad_stride;  // from model to model; 0: shared by all models
    Window height, width;
    const void *x, *weight, *bias, *grad;
    void* y;     // forward: result; backward: dx
    void* sums;  // [B, tasks_per_model, KH * KW + 1, C]: the taps' gradients, then the bias's
    DNNSUITE_HD int64_t taps() const { return height.kernel * width.kernel; }
};

/// Pooling, channels last: x [B, N, H, W, C] to y [B, N, OH, OW, C]. A row is a line of what is written. `taps`: the
/// place in its window of the largest, row by row, or kNoTap.
struct PoolArguments {
    DType dtype;
    Rows rows;
    int64_t channels;
    Window height, width;
    bool relu;            // max forward: of the result
    bool count_padding;   // mean
    int64_t divisor;      // mean: 0 for the pixels of each window
    const void* from;     // forward: x; backward: the gradient of y
    const uint8_t* taps;  // max backward
    void* to;             // forward: y; backward: dx
    uint8_t* to_taps;     // max forward
};

/// c[b] = a[b] b[b] + bias[b], also its ReLU; element (i, k) of a at b * a_model + i * a_row + k * a_column; c is packed.
struct GemmArguments {
    DType dtype;
    bool relu;
    int64_t models, rows, columns, depth;
    int64_t a_model, a_row, a_column, b_model, b_row, b_column, bias_model;  // a stride of 0 for models: shared
    const void *a, *b, *bias;                                                // bias [B, columns] or null
    void* c;
    bool bias_of_rows = false;                  // bias is [B, rows]
    int64_t parts = 1, a_part = 0, b_part = 0;  // the sum goes over `depth` of each part of A and B, these apart
};

/// out = y + scale dropout(x) down^T up^T on the rows of each model, `offsets` [B + 1], of its own rank of `ranks` [B].
/// down [B, most, inputs], up [B, outputs, most]; hidden [rows, most] = scale dropout(x) down^T. `narrow`: x, y, out, grad
/// and dx are bfloat16, and the rest is float32.
struct LowRankArguments {
    DType dtype;  // of the factors
    bool narrow;
    int64_t inputs, outputs, most;
    const int64_t *ranks, *offsets;
    bool shared_x, shared_y;  // all models have the same rows
    const void *x, *y, *down, *up, *scale, *grad;
    void *out, *hidden;
    void *dx, *ddown, *dup;  // dx may be null
    DropoutArguments dropout;
};

/// to = grad where result > 0, sums [B, columns] over the rows; all [B, rows, columns].
struct GemmGradientArguments {
    DType dtype;
    int64_t models, rows, columns;
    const void *grad, *result;  // result null: no ReLU, and `to` is not written
    void *to, *sums;            // sums may be null
};

/// All time steps of a recurrent layer. gates [B, T, N, G * H], weight [B, G * H, H], bias [B, G * H] (GRU only, or
/// null), h0 and c0 [B, N, H] or null, lengths [B, N] or null; G and S as in math/recurrence.hpp.
struct RecurrenceArguments {
    DType dtype;
    Cell cell;
    int64_t models, steps, rows, hidden;
    bool reverse;
    const void *gates, *weight, *bias, *h0, *c0;
    const int64_t* lengths;
    void *y, *h, *c;                       // forward: [B, T, N, H], and the last states [B, N, H]
    void *saved, *cells;                   // [B, T, N, S * H], [B, T, N, H]; forward: null if there is no backward pass
    const void *grad_y, *grad_h, *grad_c;  // backward: each may be null
    void *dgates, *dhidden;                // [B, T, N, G * H]; dhidden, of the state's part, for a GRU only
    void *dh0, *dc0;                       // [B, N, H]
    void* packed;                          // the weights as the kernel reads them
};

/// One time step of a recurrent layer. All steps: gates [B, T, N, G * H], y and cells [B, T, N, H], saved
/// [B, T, N, S * H]. One step: state_gates [B, N, G * H], the product of state and weights, and the states [B, N, H].
struct RecurrenceStepArguments {
    DType dtype;
    Cell cell;
    int64_t models, steps, rows, hidden, time, before;  // before: the time of the step before; none outside [0, steps)
    const int64_t* lengths;                             // [B, N] or null
    const void *gates, *state_gates, *bias;             // forward; the latter two may be null: zeros
    const void *h0, *c0;                                // backward: the states before the first step, or null: zeros
    void *h, *c;                                        // forward: read, and replaced; c for an LSTM only
    void *y, *saved, *cells;                            // forward: written (saved and cells may be null)
    const void *grad_y, *dh;      // backward: of this step's results, by way of the gates; or null
    void *past, *dc;              // backward: gradient past the gates, and of c; read, and replaced. past may be null
    void *dgates, *dstate_gates;  // backward: [B, T, N, G * H]; the latter for a GRU only, or null
    DNNSUITE_HD int64_t numbers() const { return models * rows * hidden; }
};

}  // namespace dnnsuite::fused
