# SPDX-License-Identifier: MIT
import pytest
import torch
from torch import nn

import dnnsuite
from helpers import check_matches_models, make_models


def make():
    return torch.nn.Sequential(
        torch.nn.Linear(4, 6),
        torch.nn.ReLU(),
        torch.nn.BatchNorm1d(6).eval(),
        torch.nn.LeakyReLU(0.3),
        torch.nn.Linear(6, 2),
    )


def test_a_layer_runs_with_its_activation(monkeypatch):
    seen = []
    activated = dnnsuite.nn.Linear.activated

    def watched(self, x, *args):
        seen.append(args)
        return activated(self, x, *args)

    monkeypatch.setattr(dnnsuite.nn.Linear, "activated", watched)
    array = check_matches_models(make_models(make, 3), torch.randn(3, 5, 4))
    assert seen[0] == ("relu", 0.0)
    assert type(array[0]) is torch.nn.Sequential


def test_a_hook_sees_the_layers_own_result():
    models = make_models(make, 2)
    seen = []
    for model in models:
        model[0].register_forward_hook(lambda module, args, output: seen.append(output.min().ndim))
    dnnsuite.fuse(models)(torch.randn(2, 5, 4))
    assert seen == [0]


@pytest.mark.parametrize("first", [nn.ReLU, nn.ELU, nn.Hardswish, nn.LeakyReLU])
@pytest.mark.parametrize("gradient", [False, True])
def test_an_activation_in_place_on_a_batch_of_all_models(first, gradient):
    models = [nn.Sequential(first(inplace=True), nn.Linear(4, 3)) for _ in range(2)]
    batch = torch.randn(5, 4, requires_grad=gradient)
    truth = torch.stack([model(batch.clone()) for model in models])
    given = batch * 1 if gradient else batch.clone()
    y = dnnsuite.fuse(models)(dnnsuite.stack(given, 2))
    torch.testing.assert_close(y, truth)
    if gradient:
        torch.testing.assert_close(
            *(torch.autograd.grad(z.square().sum(), batch, retain_graph=True)[0] for z in (y, truth))
        )
    else:  # as one model alone leaves its batch
        assert torch.equal(given, models[0][0](batch.clone()))
