# SPDX-License-Identifier: MIT
"""Steps with a loop over the models, after an edit."""

import torch

import dnnsuite
from dnnsuite import optim


class Rows(torch.nn.Module):
    """A recurrence, whose gradient is a loop over the models."""

    def __init__(self):
        super().__init__()
        self.rows, self.out = torch.nn.GRU(4, 6, batch_first=True), torch.nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.rows(x)[0][:, -1])


def losses(array, x, y):
    return dnnsuite.nn.functional.cross_entropy(array(x), y)


def test_after_a_drop_one_step_is_recorded_and_the_next_is_replayed():
    torch.manual_seed(0)
    models = [Rows().double() for _ in range(4)]
    array = dnnsuite.fuse(models)
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    own = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    with dnnsuite.StepRunner(array, optimizer, losses, threads=1, width=4) as runner:
        for number in range(9):
            if number == 6:
                assert runner.mode == "captured"
                array.drop(1, optimizer)
                del models[1], own[1]
            x, y = torch.randn(5, 7, 4, dtype=torch.float64), torch.randint(3, (5,))
            runner.step(dnnsuite.stack(x, len(models)), dnnsuite.stack(y, len(models))).losses()
            for model, mine in zip(models, own, strict=True):
                mine.zero_grad()
                torch.nn.functional.cross_entropy(model(x), y).backward()
                mine.step()
            if number == 7:
                assert runner.mode == "captured"
    for mine, model in zip(array, models, strict=True):
        torch.testing.assert_close(mine.state_dict(), model.state_dict())
