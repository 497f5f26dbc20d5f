# SPDX-License-Identifier: MIT
"""A runner warms up for twenty steps at most: then `mode` has its reason, and the models' own results stay."""

import copy

import pytest
import torch

import dnnsuite
from dnnsuite import optim

B, STEPS = 3, 26


class Scheduled(torch.nn.Module):
    """Takes the temperature of each step from a list, as DINO's teacher does: Python looks at the counter."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
        self.temperatures = [0.1 + 0.01 * step for step in range(STEPS)]
        self.step = 0

    def forward(self, x):
        outputs = self.layer(x) / self.temperatures[self.step]
        self.step += 1
        return outputs.square().mean()


@pytest.mark.parametrize("options", [{"threads": 1}, {"threads": 1, "width": 1}], ids=str)
def test_twenty_steps_of_warming_up_end_with_a_reason(options):
    models = [Scheduled().double() for _ in range(B)]
    array = dnnsuite.fuse(copy.deepcopy(models))
    batches = torch.randn(STEPS, B, 5, 4, dtype=torch.float64)
    alone = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]
    modes = []
    with dnnsuite.StepRunner(array, optim.SGD(array.parameters(), lr=0.01), lambda a, x: a(x), **options) as runner:
        for batch in batches:
            losses = runner.step(batch).losses()
            modes.append(runner.mode)
            for model, optimizer, x, loss in zip(models, alone, batch, losses, strict=True):
                optimizer.zero_grad()
                own = model(x)
                own.backward()
                optimizer.step()
                torch.testing.assert_close(loss, own.detach())
    assert modes.count("warming up") <= 20
    assert modes[-1] != "warming up"
    for index, model in enumerate(models):
        torch.testing.assert_close(array[index].state_dict(), model.state_dict())
        assert array[index].step == STEPS
