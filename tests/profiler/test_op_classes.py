# SPDX-License-Identifier: MIT
"""Operators by name, as torch's profiler writes them."""

import pytest

from dnnsuite.profiler._op_classes import CLASSES, op_class

KNOWN = {
    "gemm": ["aten::addmm", "aten::mm", "aten::bmm", "aten::linear", "aten::matmul", "aten::baddbmm"],
    "attention": ["aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention_for_cpu"],
    "conv": ["aten::conv2d", "aten::convolution_backward", "aten::mkldnn_convolution", "aten::_slow_conv2d_forward"],
    "recurrent": ["aten::lstm", "aten::gru", "aten::mkldnn_rnn_layer"],
    "norm": ["aten::native_batch_norm", "aten::layer_norm", "aten::native_group_norm_backward"],
    "pool": ["aten::max_pool2d_with_indices", "aten::adaptive_avg_pool2d", "aten::upsample_nearest2d"],
    "embedding": ["aten::embedding", "aten::index_select", "aten::gather", "aten::embedding_dense_backward"],
    "loss": ["aten::_log_softmax", "aten::nll_loss_forward", "aten::mse_loss", "aten::_softmax_backward_data"],
    "reduction": ["aten::sum", "aten::mean", "aten::argmax", "aten::linalg_vector_norm", "aten::topk", "aten::item"],
    "elementwise": ["aten::add_", "aten::relu", "aten::gelu_backward", "aten::_foreach_add_", "aten::native_dropout",
                    "aten::mul", "aten::where", "aten::threshold_backward", "aten::bernoulli_", "aten::sqrt"],
    "copy": ["aten::copy_", "aten::cat", "aten::contiguous", "aten::fill_", "aten::to", "aten::zero_", "aten::clone"],
    "communication": ["c10d::allreduce_", "gloo:all_reduce", "nccl:all_reduce"],
    "optimizer": ["Optimizer.step#SGD.step"],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in KNOWN.items() for name in names])
def test_the_class_of(kind, name):
    assert op_class(name) == kind
    assert kind in CLASSES


@pytest.mark.parametrize(
    "name",
    [
        "aten::view", "aten::as_strided", "aten::empty", "aten::t", "aten::transpose", "aten::detach", "aten::expand",
        "autograd::engine::evaluate_function: AddmmBackward0", "AddmmBackward0", "torch::autograd::AccumulateGrad",
        "record_function of mine",
    ],
)  # fmt: skip
def test_what_moves_no_number_is_its_callers(name):
    assert op_class(name) is None
