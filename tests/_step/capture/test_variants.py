# SPDX-License-Identifier: MIT
"""Models whose code compares what it reads of tensors, against separate models in float64."""

import pytest
import torch
import torch.nn.functional as F

import dnnsuite
from dnnsuite import StepRunner, optim

B, STEPS = 3, 30
LR = [0.05, 0.02, 0.08]


class FixedPoint(torch.nn.Module):
    """A layer iterated until nothing moves; the gradient is that of all iterations, or of the last one."""

    def __init__(self, seed, whole):
        super().__init__()
        torch.manual_seed(seed)
        self.a, self.mix, self.b = torch.nn.Linear(4, 5), torch.nn.Linear(5, 5), torch.nn.Linear(5, 2)
        torch.nn.init.orthogonal_(self.mix.weight, 0.5)
        self.whole = whole

    def forward(self, x):
        x = self.a(x)
        with torch.set_grad_enabled(self.whole):
            z = torch.zeros_like(x)
            for _ in range(12):
                before, z = z, torch.tanh(self.mix(z) + x)
                moved = (z - before).abs().max().item()
                if moved < 0.02:
                    break
        return self.b(torch.tanh(self.mix(z) + x))


class Normed(FixedPoint):
    def forward(self, x):
        self.calls = self.a(x).norm().item()
        return super().forward(x)


class Written(FixedPoint):
    """What was read goes into the result."""

    def forward(self, x):
        return super().forward(x) * (1 + x.mean().item())


def data():
    return torch.randn(STEPS, B, 6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def separate(make):
    found = []
    for index in range(B):
        model = make(index)
        own = torch.optim.SGD(model.parameters(), lr=LR[index], momentum=0.9)
        for x in data()[:, index]:
            own.zero_grad()
            loss = F.mse_loss(model(x), torch.ones(6, 2, dtype=torch.float64))
            loss.backward()
            own.step()
            found.append(loss.detach())
    return torch.stack(found).view(B, STEPS).t()


def trained(make, **options):
    array = dnnsuite.fuse([make(index) for index in range(B)])
    optimizer = optim.SGD(array.parameters(), lr=LR, momentum=0.9)

    def losses(part, x):
        return (part(x) - 1).square().mean((1, 2))

    modes, found = [], []
    with StepRunner(array, optimizer, losses, **options) as runner:
        for x in data():
            found.append(runner.step(x).losses().clone())
            modes.append(runner.mode)
    return torch.stack(found), modes


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("options", [{"threads": 1}, {"threads": 2}, {"threads": 1, "width": 1}])
def test_a_loop_that_ends_at_a_tolerance_is_captured(whole, options):
    def make(seed):
        return FixedPoint(seed, whole).double()

    found, modes = trained(make, **options)
    torch.testing.assert_close(found, separate(make), rtol=1e-9, atol=1e-11)
    assert modes.count("captured") >= 5


@pytest.mark.parametrize("kind", [Normed, Written])
def test_a_number_that_goes_elsewhere_is_run_as_written(kind):
    def make(seed):
        return kind(seed, False).double()

    found, modes = trained(make, threads=1, width=1)
    torch.testing.assert_close(found, separate(make), rtol=1e-9, atol=1e-11)
    assert modes[-1].startswith("eager: ")
    assert "test_variants.py:" in modes[-1]
