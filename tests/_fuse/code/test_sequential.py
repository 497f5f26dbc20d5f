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


class Last(nn.Module):
    """Output of a recurrent layer, with what `change` writes into it."""

    def __init__(self, kind, change=None):
        super().__init__()
        self.layer, self.change = getattr(nn, kind)(4, 6, batch_first=True), change

    def forward(self, x):
        y = self.layer(x)[0]
        if self.change == "all":
            y += x.mean()
        elif self.change == "part":
            y[:, 0] = 0.5 * y[:, 0]
        return y


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("change", [None, "all", "part"])
def test_what_is_written_into_the_output_of_a_recurrent_layer(kind, change):
    """The layer's gradient reads its output in an array, not in torch."""
    models = [nn.Sequential(Last(kind, change), nn.SELU(inplace=True)).double() for _ in range(2)]
    array = dnnsuite.fuse(models)
    x = torch.randn(2, 3, 5, 4, dtype=torch.float64)
    truth = torch.stack([model(part) for model, part in zip(models, x, strict=True)])
    y = array(x.clone())
    torch.testing.assert_close(y, truth)
    grads = torch.autograd.grad(truth.square().sum(), [p for model in models for p in model.parameters()])
    for got, *wanted in zip(
        torch.autograd.grad(y.square().sum(), list(array.parameters())),
        *(grads[i * len(grads) // 2 : (i + 1) * len(grads) // 2] for i in range(2)),
        strict=True,
    ):
        torch.testing.assert_close(got, torch.stack(wanted))
