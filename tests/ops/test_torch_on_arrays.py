# SPDX-License-Identifier: MIT
"""A layer that is registered by hand is an array's to torch's functions, until it is forgotten."""

import pytest
import torch

from dnnsuite.errors import InvalidArgument
from dnnsuite.ops.torch_on_arrays import forget, register


def test_a_registered_layer_and_a_forgotten_one():
    layer = torch.nn.Module()
    layer.weight = torch.nn.Parameter(torch.ones(3, 4, 4))
    layer.weight.grad = torch.ones(3, 4, 4)
    register(layer)
    torch.nn.init.eye_(layer.weight)
    assert torch.equal(layer.weight.detach(), torch.eye(4).expand(3, 4, 4))
    assert torch.nn.utils.clip_grad_norm_([layer.weight], 1.0).shape == (3,)
    steps = torch.optim.LBFGS([layer.weight])
    with pytest.raises(InvalidArgument, match="one LBFGS for each model"):
        steps.step(lambda: layer.weight.square().sum())
    forget(layer)
    assert torch.nn.utils.clip_grad_norm_([layer.weight], 1.0).shape == ()
    steps.step(lambda: layer.weight.square().sum())
