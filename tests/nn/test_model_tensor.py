# SPDX-License-Identifier: MIT
"""A tensor of B models that says it is one model's."""

import copy

import pytest
import torch

import dnnsuite
from dnnsuite.errors import InvalidArgument
from dnnsuite.nn.model_tensor import (
    Deferred,
    ModelTensor,
    NotFusable,
    check_stray,
    expanded,
    outside,
    physical,
    state,
    wrap,
)


def test_it_is_a_tensor_of_the_models_shape():
    tensor = ModelTensor(torch.randn(3, 5, 4))
    assert isinstance(tensor, torch.Tensor)
    assert (tensor.shape, tensor.size(), tensor.size(-1), tensor.dim(), tensor.ndim, len(tensor), tensor.B) == (
        (5, 4), (5, 4), 4, 2, 2, 5, 3,
    )  # fmt: skip
    assert tensor.dtype == torch.float32
    assert tensor.device.type == "cpu"
    assert [row.shape for row in tensor] == [(4,)] * 5
    assert "each of 3 models" in repr(tensor)
    other = copy.deepcopy(tensor)
    assert torch.equal(other.value, tensor.value)
    assert other.value.data_ptr() != tensor.value.data_ptr()
    with pytest.raises(TypeError, match="0-d"):
        len(ModelTensor(torch.zeros(3)))


def test_wrapping():
    value = torch.randn(3, 2)
    assert physical(wrap(value)) is value
    assert wrap("text") == physical("text") == "text"
    assert wrap(wrap(value)) is not None
    assert expanded(value, 4).shape == (4, 3, 2)
    assert expanded(value, 4).stride(0) == 0
    assert expanded([wrap(value), 1], 3)[0] is value


def test_code_below_torchs_functions_is_refused_and_nothing_worse():
    tensor = ModelTensor(torch.randn(3, 5))
    with pytest.raises(NotFusable):
        torch.ops.aten.mm.default(tensor, tensor)
    with pytest.raises((NotFusable, RuntimeError, TypeError)):
        tensor.numpy()
    with pytest.raises((NotFusable, RuntimeError, TypeError)):
        tensor.data_ptr()


def test_a_deferred_result_is_computed_once_and_without_hooks():
    layer = dnnsuite.nn.Linear(4, 2, B=3)
    calls = []
    layer.register_forward_hook(lambda *args: calls.append(1))
    x = torch.randn(3, 5, 4)
    tensor = ModelTensor(None, Deferred(layer, x, layer.shape_of_result(x)))
    assert tensor.shape == (5, 2)
    assert tensor.value is tensor.value
    assert torch.equal(tensor.value, layer(x))
    assert calls == [1]
    state.pending.clear()


def test_layers_take_both_kinds_of_tensors():
    layer = dnnsuite.nn.Linear(4, 2, B=3)
    x = torch.randn(3, 5, 4)
    assert type(layer(x)) is torch.Tensor
    result = layer(ModelTensor(x))
    assert type(result) is ModelTensor
    assert torch.equal(result.value, layer(x))
    state.B = 3
    try:
        assert layer(x[0]).shape == (5, 2)  # one that all models share
        with outside():
            assert layer(x).shape == (3, 5, 2)
    finally:
        state.B = 0
        state.pending.clear()


def test_parameters_of_nobody():
    check_stray(torch.ones(2))
    with pytest.raises(NotFusable, match="list"):
        check_stray(torch.nn.Parameter(torch.ones(2)))
    state.random = torch.nn.Linear(1, 1)
    try:
        with pytest.raises(InvalidArgument, match="closure"):
            check_stray(torch.nn.Parameter(torch.ones(2)))
    finally:
        state.random = None
