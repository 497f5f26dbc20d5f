# SPDX-License-Identifier: MIT
import pytest
import torch

import dnnsuite


class Table(torch.nn.Module):
    """Runs one by one for its look at x, and keeps a list and a counter."""

    def __init__(self):
        super().__init__()
        self.layer, self.table, self.calls = torch.nn.Linear(3, 3), [1.0], 0

    def forward(self, x):
        self.calls += 1
        sign = 1.0 if x.mean() > 0 else -1.0
        return self.layer(x) * (sign * sum(self.table) if self.calls < 4 else 0.5)


@pytest.mark.parametrize("width", [0, 1, 3])
def test_models_that_run_one_by_one_follow_containers_and_keep_their_counters(width):
    torch.manual_seed(0)
    models = [Table().double() for _ in range(3)]
    array = dnnsuite.fuse(models)
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.1)
    data = torch.randn(7, 3, 4, 3, dtype=torch.float64)

    def loss(array, x):
        return array(x).square().mean((1, 2))

    found = []
    runner = dnnsuite.StepRunner(array, optimizer, loss, width=width) if width else None
    for step, x in enumerate(data):
        if step == 2:
            array.table.append(2.0)
        if step == 5:
            array.layer.bias.requires_grad_(False)  # the runner deals the array out anew
        if runner is None:
            optimizer.zero_grad()
            losses = loss(array, x)
            losses.sum().backward()
            optimizer.step()
            found.append(losses.detach())
        else:
            found.append(runner.step(x).losses().clone())
    for index, model in enumerate(models):
        single = torch.optim.SGD(model.parameters(), lr=0.1)
        for step, x in enumerate(data):
            if step == 2:
                model.table.append(2.0)
            if step == 5:
                model.layer.bias.requires_grad_(False)
            single.zero_grad()
            one = model(x[index]).square().mean()
            one.backward()
            single.step()
            torch.testing.assert_close(found[step][index], one.detach())
    if runner is not None:
        runner.close()
    assert array.calls == len(data)
