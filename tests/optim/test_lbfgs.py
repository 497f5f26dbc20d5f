# SPDX-License-Identifier: MIT
"""LBFGS against torch's, model by model."""

import copy
import io

import pytest
import torch

import dnnsuite
from dnnsuite import optim
from dnnsuite.errors import InvalidArgument
from one_models import losses, own


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_searches_for_each_model(search, models, batches):
    values = {"lr": [0.1, 0.02, 1.0], "max_iter": [20, 5, 9], "history_size": [100, 3, 5]}
    array = dnnsuite.fuse(models)
    optimizer = optim.LBFGS(array.parameters(), **values, line_search_fn=search)

    def closure_of(model, optimizer, x):
        def closure():
            optimizer.zero_grad()
            found = losses(model, x)
            found.sum().backward()
            return found

        return closure

    for place, x in enumerate(batches[:4]):
        if place == 2:
            file = io.BytesIO()
            torch.save(optimizer.state_dict(), file)
            file.seek(0)
            optimizer = optim.LBFGS(array.parameters(), **values, line_search_fn=search)
            optimizer.load_state_dict(torch.load(file, weights_only=True))
        if place == 3:
            array.drop(0, optimizer)
            x = x[1:]
        optimizer.step(closure_of(array, optimizer, x))
    for index in (1, 2):
        model = copy.deepcopy(models[index])
        each = torch.optim.LBFGS(model.parameters(), **own(values, index), line_search_fn=search)
        for x in batches[:4, index]:
            each.step(closure_of(model, each, x))
        back = array[index - 1]
        apart = optimizer.to_model(index - 1, back.parameters())
        apart.step(closure_of(back, apart, batches[4, index]))
        each.step(closure_of(model, each, batches[4, index]))
        for mine, theirs in zip(back.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-8)


def test_a_closure_that_fails_ends_the_searches(models, batches):
    array = dnnsuite.fuse(models)
    optimizer = optim.LBFGS(array.parameters())
    with pytest.raises(ZeroDivisionError):
        optimizer.step(lambda: 1 / 0)
    with pytest.raises(InvalidArgument, match=r"one loss for each of 3 models"):
        optimizer.step(lambda: losses(array, batches[0]).sum())
    with pytest.raises(InvalidArgument, match="as often as its search needs"):
        dnnsuite.StepRunner(array, optimizer, losses)
