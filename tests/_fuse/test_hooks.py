# SPDX-License-Identifier: MIT
import pytest
import torch

import dnnsuite
from dnnsuite._fuse.hooks import hooked_inside
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, make_models


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


class Watching(torch.nn.Module):
    """Collect activations by a hook that holds the model, as is done for features of a trained model."""

    def __init__(self):
        super().__init__()
        self.layer, self.head, self.seen = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2), []
        self.layer.register_forward_hook(lambda layer, args, output: self.seen.append(output.detach()))

    def forward(self, x):
        self.seen.clear()
        return self.head(self.layer(x)) * self.seen[0].abs().mean()


@pytest.mark.parametrize("threads", [0, 1])
def test_a_hook_that_holds_its_model_holds_the_arrays(threads):
    models = make_models(Watching, 3)
    array, x = dnnsuite.fuse(models), torch.randn(3, 5, 4)
    if threads:
        optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.0)
        with dnnsuite.StepRunner(array, optimizer, lambda a, x: a(x).square().mean((1, 2)), threads=threads) as runner:
            for _ in range(5):
                found = runner.step(x).losses()
        expected = torch.stack([model(own).square().mean() for model, own in zip(models, x, strict=True)])
    else:
        found, expected = array(x), torch.stack([model(own) for model, own in zip(models, x, strict=True)])
    assert_near(found, expected)
    model = dnnsuite.unfuse(array)[1]
    model(x[1])
    assert_near(model.seen[0], models[1].layer(x[1]))
    assert len(models[1].seen) == 2  # by the last line alone
