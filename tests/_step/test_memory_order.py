# SPDX-License-Identifier: MIT
"""A parameter that `.data = ...` puts in another order in memory, or with gaps, trains as with torch's optimizers."""

import copy

import pytest
import torch

import dnnsuite
from dnnsuite import optim

B = 3
ORDERS = {
    "turned in place": lambda data: data.transpose(-1, -2),
    "columns first": lambda data: data.transpose(-1, -2).contiguous().transpose(-1, -2),
    "with gaps": lambda data: torch.stack([data, data], -1)[..., 0],
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ["SGD", "AdamW"])
@pytest.mark.parametrize("by_runner", [False, True])
def test_another_order_in_memory_trains_as_with_torchs_optimizers(order, name, by_runner):
    torch.manual_seed(0)
    models = [torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)).double() for _ in range(B)]
    array = dnnsuite.fuse(copy.deepcopy(models))
    options = {"momentum": 0.9} if name == "SGD" else {}
    optimizer = getattr(optim, name)(array.parameters(), lr=0.01, **options)
    alone = [getattr(torch.optim, name)(model.parameters(), lr=0.01, **options) for model in models]
    batch = torch.randn(B, 5, 4, dtype=torch.float64)
    runner = dnnsuite.StepRunner(array, optimizer, losses_of, threads=1) if by_runner else None
    for step in range(12):
        if runner is not None:
            losses = runner.step(batch).losses()
        else:
            optimizer.zero_grad()
            losses = losses_of(array, batch)
            losses.sum().backward()
            optimizer.step()
        for model, own, x, loss in zip(models, alone, batch, losses, strict=True):
            own.zero_grad()
            found = model(x).square().mean()
            found.backward()
            own.step()
            torch.testing.assert_close(loss.detach(), found.detach())
        if step in (4, 8):
            for weight in (array.get_submodule("0").weight, *(model[0].weight for model in models)):
                weight.data = ORDERS[order](weight.data)
    for index, model in enumerate(models):
        torch.testing.assert_close(array[index].state_dict(), model.state_dict())
    if runner is not None:
        assert runner.mode == "captured"
        runner.close()


def losses_of(array, x):
    return array(x).square().flatten(1).mean(1)
