# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.profiler.cpu._classes import class_of, phase_of, replayed_phases


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::mm", "gemm"), ("aten::addmm", "gemm"), ("aten::baddbmm", "gemm"), ("dnnsuite::linear_backward", "gemm"),
        ("dnnsuite::matmul", "gemm"), ("dnnsuite::sum_of_products", "gemm"),
        ("dnnsuite::pixel_products", "gemm"),
        ("aten::convolution", "conv"), ("aten::mkldnn_convolution", "conv"), ("dnnsuite::depthwise", "conv"),
        ("aten::native_layer_norm", "norm"), ("dnnsuite::batch_norm_act", "norm"),
        ("dnnsuite::bias_dropout_add_layer_norm", "norm"), ("aten::_softmax", "softmax"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"), ("dnnsuite::attention", "attention"),
        ("aten::lstm", "recurrence"), ("dnnsuite::recurrence", "recurrence"), ("aten::relu", "elementwise"),
        ("aten::add_", "elementwise"), ("aten::addcmul_", "elementwise"), ("aten::sum", "reduction"),
        ("aten::max_pool2d", "pooling"), ("aten::copy_", "copy"), ("aten::cat", "copy"), ("aten::view", "view"),
        ("aten::t", "view"), ("aten::tanh", "elementwise"), ("aten::empty", "alloc"), ("aten::embedding", "embedding"),
        ("dnnsuite::optimizer_step_", "optimizer"), ("aten::_foreach_add_", "optimizer"),
        ("dnnsuite::cross_entropy", "loss"), ("aten::bernoulli_", "random"), ("AddmmBackward0", "other"),
        ("Optimizer.step#Adam.step", "other"), ("aten::maximum", "elementwise"), ("aten::select_backward", "copy"),
    ],
)  # fmt: skip
def test_class(name, kind):
    assert class_of(name) == kind


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("autograd::engine::evaluate_function: MmBackward0", "backward"),
        ("MmBackward0", "backward"),
        ("dnnsuite::linear_backward", "backward"),
        ("Optimizer.step#Adam.step", "optimizer"),
        ("dnnsuite::optimizer_step_", "optimizer"),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter", "data"),
        ("aten::mm", None),
    ],
)
def test_phase(name, phase):
    assert phase_of(name) == phase


def test_a_replayed_step_is_backward_from_its_first_gradient_to_the_optimizer():
    names = ["aten::mm", "dnnsuite::linear_backward", "aten::mm", "dnnsuite::optimizer_step_", "aten::mm"]
    own = [phase_of(name) for name in names]
    assert replayed_phases(names, own) == [None, "backward", "backward", "optimizer", None]
    assert replayed_phases(names * 2, own * 2)[5:8] == [None, "backward", "backward"]


def test_where_autograd_was_recorded_it_knows():
    names = ["autograd::engine::evaluate_function: MmBackward0", "aten::mm"]  # the second: clipping, say
    assert replayed_phases(names, ["backward", None]) == ["backward", None]
