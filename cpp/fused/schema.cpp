// SPDX-License-Identifier: MIT
// Every operator's signature. Dimension 0 of every tensor is the model. The library needs LibTorch and no Python:
// it is a plain shared object that torch.ops.load_library opens; the instruments of dnnsuite._C are the opposite.
#include <torch/csrc/stable/library.h>

STABLE_TORCH_LIBRARY(dnnsuite, m) {
    m.def("instruction_set() -> str");

    m.def("dropout(Tensor x, Tensor p, Tensor rng) -> Tensor");
    m.def("activate(Tensor x, str curve, float first, float second) -> Tensor");
    m.def("activate_backward(Tensor grad, Tensor x, str curve, float first, float second) -> Tensor");
    m.def("random_numbers(Tensor like, Tensor rng, str distribution, float first, float second) -> Tensor");

    m.def("bias_dropout_add(Tensor x, Tensor? bias, Tensor residual, Tensor? p, Tensor? rng) -> Tensor");
    m.def("bias_act_dropout(Tensor x, Tensor? bias, str activation, Tensor? p, Tensor? rng) -> Tensor");
    m.def(
        "bias_act_dropout_backward(Tensor grad, Tensor? x, Tensor? bias, str activation, Tensor? p, Tensor? rng)"
        " -> (Tensor, Tensor)");

    m.def("layer_norm(Tensor x, Tensor? weight, Tensor? bias, float eps) -> Tensor");
    m.def("layer_norm_backward(Tensor grad, Tensor x, Tensor? weight, float eps) -> (Tensor, Tensor, Tensor)");
    m.def("layer_norm_backward_parameters(Tensor grad, Tensor x, float eps) -> (Tensor, Tensor)");
    m.def(
        "bias_dropout_add_layer_norm(Tensor x, Tensor? bias, Tensor residual, Tensor? p, Tensor? rng,"
        " Tensor? weight, Tensor? norm_bias, float eps) -> Tensor");
    m.def(
        "bias_dropout_add_layer_norm_backward(Tensor grad, Tensor x, Tensor? bias, Tensor residual, Tensor? p,"
        " Tensor? rng, Tensor? weight, float eps) -> (Tensor, Tensor, Tensor, Tensor, Tensor)");

    m.def("rms_norm(Tensor x, Tensor? weight, float eps) -> Tensor");
    m.def("rms_norm_backward(Tensor grad, Tensor x, Tensor? weight, float eps) -> (Tensor, Tensor)");
    m.def("rms_norm_backward_weight(Tensor grad, Tensor x, float eps) -> Tensor");
    m.def("group_norm(Tensor x, int num_groups, Tensor? weight, Tensor? bias, float eps) -> Tensor");
    m.def(
        "group_norm_backward(Tensor grad, Tensor x, int num_groups, Tensor? weight, float eps)"
        " -> (Tensor, Tensor, Tensor)");
    m.def("max_over(Tensor x, int dim) -> (Tensor, Tensor)");
    m.def("signed_max_over(Tensor x, Tensor sign) -> (Tensor, Tensor)");
    m.def("batch_norm_statistics(Tensor x, float eps) -> Tensor");
    m.def(
        "batch_norm_act(Tensor x, Tensor? weight, Tensor? bias, Tensor? residual, Tensor? mean, Tensor? variance,"
        " float eps, str activation, float slope) -> (Tensor, Tensor)");
    m.def(
        "batch_norm_act_running_(Tensor(a!) out, Tensor(b!) statistics, Tensor(c!) running_mean,"
        " Tensor(d!) running_variance, Tensor x, Tensor? weight, Tensor? bias, Tensor? residual, float eps,"
        " str activation, float slope, float momentum) -> ()");
    m.def(
        "batch_norm_act_counted_(Tensor(a!) out, Tensor(b!) statistics, Tensor(c!) running_mean,"
        " Tensor(d!) running_variance, Tensor(e!) tracked, Tensor x, Tensor? weight, Tensor? bias, Tensor? residual,"
        " float eps, str activation, float slope, float momentum) -> ()");
    m.def(
        "batch_norm_act_backward(Tensor grad, Tensor x, Tensor? weight, Tensor? bias, Tensor? residual,"
        " Tensor statistics, bool training, str activation, float slope) -> (Tensor, Tensor, Tensor, Tensor)");
    m.def(
        "batch_norm_act_backward_parameters(Tensor grad, Tensor x, Tensor? weight, Tensor? bias, Tensor statistics,"
        " str activation, float slope) -> (Tensor, Tensor)");

    m.def(
        "attention(Tensor qkv, int num_heads, Tensor? p, Tensor? rng, bool causal, Tensor? key_padding_mask)"
        " -> Tensor");
    m.def(
        "attention_backward(Tensor grad, Tensor qkv, int num_heads, Tensor? p, Tensor? rng, bool causal,"
        " Tensor? key_padding_mask) -> Tensor");

    m.def("linear(Tensor x, Tensor weight, Tensor? bias, bool relu) -> Tensor");
    m.def(
        "linear_backward(Tensor grad, Tensor x, Tensor weight, Tensor? relu_output, bool needs_x, bool needs_weight,"
        " bool needs_bias) -> (Tensor, Tensor, Tensor)");
    m.def(
        "low_rank(Tensor y, Tensor x, Tensor down, Tensor up, Tensor scale, int[] ranks, int[] rows, Tensor? p,"
        " Tensor? rng) -> (Tensor, Tensor)");
    m.def(
        "low_rank_backward(Tensor grad, Tensor x, Tensor down, Tensor up, Tensor scale, Tensor hidden, int[] ranks,"
        " int[] rows, Tensor? p, Tensor? rng, bool needs_x) -> (Tensor, Tensor, Tensor)");
    m.def("matmul(Tensor a, Tensor b) -> Tensor");
    m.def("pixel_products(Tensor x, Tensor weight, Tensor? bias) -> Tensor");
    m.def("sum_of_products(Tensor a, Tensor b) -> Tensor");

    m.def(
        "convolve_models(Tensor x, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation,"
        " bool transposed, int[] output_padding, int groups) -> Tensor");
    m.def(
        "convolve_models_backward(Tensor grad, Tensor x, Tensor weight, int[] stride, int[] padding, int[] dilation,"
        " bool transposed, int[] output_padding, int groups, bool needs_x, bool needs_weight, bool needs_bias)"
        " -> (Tensor, Tensor, Tensor)");

    m.def(
        "patches(Tensor x, int kernel_h, int kernel_w, int stride_h, int stride_w, int padding_h, int padding_w)"
        " -> Tensor");
    m.def(
        "add_patches(Tensor patches, int height, int width, int kernel_h, int kernel_w, int stride_h, int stride_w,"
        " int padding_h, int padding_w) -> Tensor");

    m.def(
        "window_convolution(Tensor x, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation,"
        " int groups) -> Tensor");
    m.def(
        "window_convolution_backward(Tensor grad, Tensor x, Tensor weight, int[] stride, int[] padding, int[] dilation,"
        " int groups, bool needs_x, bool needs_weight, bool needs_bias) -> (Tensor, Tensor, Tensor)");

    m.def("embedding(Tensor weight, Tensor indices, int padding_idx) -> Tensor");
    m.def("embedding_backward(Tensor grad, Tensor indices, int vocabulary, int padding_idx) -> Tensor");

    m.def(
        "recurrence(Tensor gates, Tensor weight_hh, Tensor? bias_hh, Tensor? h, Tensor? c, Tensor? lengths, str kind,"
        " bool reverse, bool keep) -> (Tensor y, Tensor last_h, Tensor last_c, Tensor saved, Tensor cells)");
    m.def(
        "recurrence_backward(Tensor? grad_y, Tensor? grad_h, Tensor? grad_c, Tensor weight_hh, Tensor? h, Tensor? c,"
        " Tensor? lengths, Tensor y, Tensor saved, Tensor cells, str kind, bool reverse)"
        " -> (Tensor dgates, Tensor dhidden, Tensor dh, Tensor dc)");
    m.def(
        "recurrence_step_(Tensor gates, Tensor? state_gates, Tensor? bias_hh, Tensor? lengths, Tensor(a!) h,"
        " Tensor(b!)? c, Tensor(c!) y, Tensor(d!)? saved, Tensor(e!)? cells, int time, str kind) -> ()");
    m.def(
        "recurrence_step_backward_(Tensor? grad_y, Tensor? dh, Tensor? lengths, Tensor? h0, Tensor? c0, Tensor y,"
        " Tensor? saved, Tensor? cells, Tensor(a!)? past, Tensor(b!)? dc, Tensor(c!) dgates, Tensor(d!)? dstate_gates,"
        " int time, int before, str kind) -> ()");
    m.def(
        "depthwise(Tensor x, Tensor weight, Tensor? bias, int stride_h, int stride_w, int padding_h, int padding_w,"
        " int dilation_h, int dilation_w) -> Tensor");
    m.def(
        "depthwise_backward_input(Tensor grad, Tensor weight, int height, int width, int stride_h, int stride_w,"
        " int padding_h, int padding_w, int dilation_h, int dilation_w) -> Tensor");
    m.def(
        "depthwise_backward_weight(Tensor grad, Tensor x, int kernel_h, int kernel_w, int stride_h, int stride_w,"
        " int padding_h, int padding_w, int dilation_h, int dilation_w) -> Tensor");

    m.def(
        "max_pool(Tensor x, int kernel_h, int kernel_w, int stride_h, int stride_w, int padding_h, int padding_w,"
        " int dilation_h, int dilation_w, bool ceil_mode, bool relu) -> (Tensor, Tensor)");
    m.def(
        "max_pool_backward(Tensor grad, Tensor taps, int height, int width, int kernel_h, int kernel_w, int stride_h,"
        " int stride_w, int padding_h, int padding_w, int dilation_h, int dilation_w) -> Tensor");
    m.def(
        "avg_pool(Tensor x, int kernel_h, int kernel_w, int stride_h, int stride_w, int padding_h, int padding_w,"
        " bool ceil_mode, bool count_include_pad, int divisor) -> Tensor");
    m.def(
        "avg_pool_backward(Tensor grad, int height, int width, int kernel_h, int kernel_w, int stride_h, int stride_w,"
        " int padding_h, int padding_w, bool count_include_pad, int divisor) -> Tensor");

    m.def("glu(Tensor x, int dim) -> Tensor");
    m.def("glu_backward(Tensor grad, Tensor x, int dim) -> Tensor");
    m.def("prelu(Tensor x, Tensor slopes, int inner) -> Tensor");
    m.def("prelu_backward(Tensor grad, Tensor x, Tensor slopes, int inner) -> (Tensor, Tensor)");
    m.def("scaled(Tensor x, Tensor factors, bool by_rows) -> Tensor");
    m.def("scaled_backward(Tensor grad, Tensor x, Tensor factors, bool by_rows) -> (Tensor, Tensor)");
    m.def("short_softmax(Tensor x, bool log) -> Tensor");
    m.def("short_softmax_backward(Tensor grad, Tensor y, bool log) -> Tensor");
    m.def("rearranged(Tensor x, int[] order) -> Tensor");
    m.def(
        "resample(Tensor x, str kind, int height, int width, float step_h, float step_w, int before_h, int before_w)"
        " -> Tensor");
    m.def(
        "resample_backward(Tensor grad, str kind, int height, int width, float step_h, float step_w, int before_h,"
        " int before_w) -> Tensor");

    m.def(
        "cross_entropy(Tensor logits, Tensor target, int ignore_index, float label_smoothing, str reduction)"
        " -> (Tensor loss, Tensor log_sum)");
    m.def(
        "cross_entropy_backward(Tensor grad, Tensor logits, Tensor target, Tensor log_sum, int ignore_index,"
        " float label_smoothing, str reduction) -> Tensor");

    // What the parameters of a step are (pointers, strides, sizes), for optimizer_step_ to write to. Keep the tensors, as
    // dnnsuite.ops.optimizer_plan does: the stable ABI of torch 2.10 has no tensor that could hold them.
    // `written` are those tensors again, for whoever watches or records operators; nobody else needs to fill it.
    m.def("optimizer_plan(str rule, Tensor[] params, Tensor[] states, Tensor[] scalars) -> Tensor");
    m.def(
        "optimizer_step_(Tensor plan, Tensor(a!)[] written, Tensor[] grads, Tensor[] hyper, Tensor? factor, Tensor? "
        "active,"
        " Tensor(b!)? tickets, bool maximize, bool decoupled, bool nesterov) -> ()");
    m.def("gradient_norms(Tensor[] grads, float norm_type) -> Tensor");
}
