# SPDX-License-Identifier: MIT
import pytest
import torch

import dnnsuite
from dnnsuite._fuse.hooks import hooked_inside
from dnnsuite.errors import InvalidArgument
from helpers import make_models


def test_backward_hooks_are_refused():
    models = make_models(lambda: torch.nn.Sequential(torch.nn.Linear(4, 3)), 2)
    models[1][0].register_full_backward_hook(lambda *args: None)
    with pytest.raises(InvalidArgument, match="model 1 has a backward hook at 0"):
        dnnsuite.fuse(models)


def test_gradient_hooks_of_a_layers_parameters_are_refused():
    models = make_models(lambda: torch.nn.Sequential(torch.nn.Linear(4, 3)), 2)
    models[1][0].bias.register_hook(lambda grad: grad * 0)
    with pytest.raises(InvalidArgument, match="bias at 0 of model 1 has a gradient hook"):
        dnnsuite.fuse(models)


def test_hooks_that_differ_are_refused():
    models = make_models(lambda: torch.nn.Sequential(torch.nn.Linear(4, 3)), 3)
    models[1][0].register_forward_hook(lambda module, args, output: output * 2)
    with pytest.raises(InvalidArgument, match="models 0 and 1 differ at 0: they have other forward hooks"):
        dnnsuite.fuse(models)


def test_only_hooks_of_parts_keep_a_stack_from_being_fused_whole():
    encoder = torch.nn.TransformerEncoderLayer(4, 2, dim_feedforward=4)
    encoder.register_forward_hook(lambda *args: None)
    assert not hooked_inside(encoder)
    encoder.linear1.register_forward_hook(lambda *args: None)
    assert hooked_inside(encoder)
