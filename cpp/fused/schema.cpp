// SPDX-License-Identifier: MIT
// Every operator's signature. Dimension 0 of every tensor is the model. The library needs LibTorch and no Python:
// it is a plain shared object that torch.ops.load_library opens; the instruments of dnnsuite._C are the opposite.
#include <torch/csrc/stable/library.h>

STABLE_TORCH_LIBRARY(dnnsuite, m) {
    m.def("dropout(Tensor x, Tensor p, Tensor rng) -> Tensor");

    m.def("bias_dropout_add(Tensor x, Tensor? bias, Tensor residual, Tensor? p, Tensor? rng) -> Tensor");
    m.def("bias_act_dropout(Tensor x, Tensor? bias, str activation, Tensor? p, Tensor? rng) -> Tensor");
    m.def(
        "bias_act_dropout_backward(Tensor grad, Tensor? x, Tensor? bias, str activation, Tensor? p, Tensor? rng)"
        " -> (Tensor, Tensor)");

    m.def("layer_norm(Tensor x, Tensor? weight, Tensor? bias, float eps) -> Tensor");
    m.def("layer_norm_backward(Tensor grad, Tensor x, Tensor? weight, float eps) -> (Tensor, Tensor, Tensor)");
    m.def(
        "bias_dropout_add_layer_norm(Tensor x, Tensor? bias, Tensor residual, Tensor? p, Tensor? rng,"
        " Tensor? weight, Tensor? norm_bias, float eps) -> Tensor");
    m.def(
        "bias_dropout_add_layer_norm_backward(Tensor grad, Tensor x, Tensor? bias, Tensor residual, Tensor? p,"
        " Tensor? rng, Tensor? weight, float eps) -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
}
