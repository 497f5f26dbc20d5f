# SPDX-License-Identifier: MIT
import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, optim
from dnnsuite._step.part import RemovedParameters
from dnnsuite.errors import InvalidArgument
from helpers import make_models
from small_steps import squares


def net():
    return torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Linear(4, 4))


def test_what_was_taken_out_is_found_and_what_never_was_there_is_not():
    array, other = torch.nn.Linear(2, 2), torch.nn.Parameter(torch.zeros(2))
    bias = array.bias
    optimizer = torch.optim.SGD([array.weight, bias, other], 0.1)
    removed = RemovedParameters()
    removed.look(array, [optimizer])
    assert removed.ids == frozenset()
    array.bias = None
    removed.look(array, [optimizer])
    assert removed.ids == {id(bias)}
    array.bias = bias
    removed.look(array, [optimizer])
    assert removed.ids == frozenset()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_parameter_that_is_taken_out_is_stepped_no_more(threads):
    models = make_models(net, 3)
    array = dnnsuite.fuse(models)
    optimizer = optim.Adam(array.parameters(), lr=1e-2)
    own = [torch.optim.Adam(model.parameters(), lr=1e-2) for model in models]
    bias = array.get_parameter("0.bias")
    with StepRunner(array, optimizer, squares, threads=threads) as runner:
        for step in range(6):
            if step == 3:
                kept = bias.detach().clone()
                for model in (array, *models):
                    model.get_submodule("0").bias = None
            x = torch.randn(3, 8, 6)
            losses = runner.step(x).losses()
            for model, one, batch, found in zip(models, own, x, losses, strict=True):
                one.zero_grad()
                loss = model(batch).square().mean()
                loss.backward()
                one.step()
                torch.testing.assert_close(found, loss.detach())
    assert torch.equal(bias, kept)
    with pytest.raises(InvalidArgument, match="that the array does not"):
        StepRunner(array, optimizer, squares)
