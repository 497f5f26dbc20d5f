# SPDX-License-Identifier: MIT
import torch

import dnnsuite
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
    torch.testing.assert_close(
        again.mean, 0.5 * expected[1].mean + 0.5 * expected[1].layer(x[1]).mean().item()
    )
