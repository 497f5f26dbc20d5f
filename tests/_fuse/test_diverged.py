# SPDX-License-Identifier: MIT
import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, optim
from dnnsuite._fuse import Divergence, narrow
from helpers import make_models


class Mean(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.mean, self.calls = torch.nn.Linear(3, 2), 1.0, 0

    def forward(self, x):
        out, self.calls = self.layer(x), self.calls + 1
        self.mean = 0.5 * self.mean + 0.5 * out.mean().item()
        return out


def test_models_that_went_apart_have_their_own_values():
    array = dnnsuite.fuse(make_models(Mean, 3))
    shards = [narrow(array, 0, 2), narrow(array, 2, 1)]
    divergence = Divergence(array, shards)
    assert not divergence.found()
    x = torch.randn(3, 4, 3)
    expected = make_models(Mean, 3)
    for model, own in zip(expected, x, strict=True):
        model(own)
    shards[0](x[:2])
    shards[1](x[2:])
    assert divergence.found()
    for found, model in zip(dnnsuite.unfuse(array), expected, strict=True):
        torch.testing.assert_close(found.mean, model.mean)
    assert not divergence.found()  # they have them already
    again = narrow(array, 1, 1)
    again(x[1:2])
    torch.testing.assert_close(again.mean, 0.5 * expected[1].mean + 0.5 * expected[1].layer(x[1]).mean().item())


class Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.k, None


class Configured(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.own, self.config = torch.nn.Linear(3, 2), 1.0, {"k": 1.0}

    def forward(self, x):
        return Backward.apply(self.layer(x), self.config["k"]) * self.own


@pytest.mark.parametrize("width", [1, 2, 3])
def test_what_models_share_is_changed_in_place_for_those_with_values_of_their_own(width):
    models = make_models(lambda: torch.nn.Sequential(Configured()), 3)
    for index, model in enumerate(models):
        model[0].own = 1.0 + index
    array = dnnsuite.fuse(models)
    optimizer = optim.SGD(array.parameters(), lr=0.01)
    own = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]
    with StepRunner(array, optimizer, lambda part, x: part(x).square().mean((1, 2)), threads=1, width=width) as runner:
        for step in range(8):
            if step in (4, 6):
                for one in (array.get_submodule("0"), *(model[0] for model in models)):
                    one.config.update(k=0.5 + step)
            x = torch.randn(3, 4, 3)
            found = runner.step(x).losses()
            for index, (model, one) in enumerate(zip(models, own, strict=True)):
                one.zero_grad()
                loss = model(x[index]).square().mean()
                loss.backward()
                one.step()
                torch.testing.assert_close(found[index], loss.detach())
