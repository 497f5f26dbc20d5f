# SPDX-License-Identifier: MIT
"""Complex numbers, their lazy conjugates, and counts are captured: a replay is what models apart do."""

import copy

import pytest
import torch

import dnnsuite
from dnnsuite import optim

STEPS, B = 5, 2


class Filtered(torch.nn.Module):
    """A product of spectra, whose gradient conjugates the other factor lazily."""

    def __init__(self):
        super().__init__()
        self.kernel = torch.nn.Parameter(torch.randn(8, dtype=torch.float64))
        self.rate = torch.nn.Parameter(torch.rand(3, dtype=torch.float64))

    def loss(self, x):
        spectrum = torch.fft.rfft(x) * torch.fft.rfft(self.kernel).conj()
        turned = torch.exp(1j * self.rate).imag.square().sum() + (-1j * self.rate).exp().conj().real.sum()
        return torch.fft.irfft(spectrum, n=8).square().mean() + spectrum.conj().imag.abs().mean() + turned


class OfComplexWeights(torch.nn.Module):
    """The optimizer sees the weight as pairs of real numbers."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(5, 5, dtype=torch.complex128))

    def loss(self, x):
        z = torch.fft.rfft(x) @ self.weight
        self.last = z.detach().conj()
        return (z @ z.mH).abs().mean() + torch.linalg.vecdot(z, z.conj()).real.mean()


class Counted(torch.nn.Module):
    """Degrees of a graph: `bincount` says how many nodes there are at least."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8, dtype=torch.float64))

    def loss(self, x):
        nodes = (x.flatten()[:12] * 2).round().long().clamp(0, 3)
        degrees = torch.bincount(nodes, minlength=4).clamp(min=1)
        return ((x @ self.weight)[:4] / degrees - len(degrees)).square().mean()


@pytest.mark.parametrize("kind", [Filtered, OfComplexWeights, Counted])
def test_captured_and_equal_to_models_apart(kind):
    torch.manual_seed(0)
    models, batches = [kind() for _ in range(B)], torch.randn(STEPS, B, 4, 8, dtype=torch.float64)
    wanted = []
    for model, xs in zip(copy.deepcopy(models), batches.unbind(1), strict=True):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for x in xs:
            optimizer.zero_grad()
            loss = model.loss(x)
            loss.backward()
            optimizer.step()
            wanted.append(loss.detach())
    array = dnnsuite.fuse(models)
    optimizer = optim.Adam(array.parameters(), lr=0.01)
    with dnnsuite.StepRunner(array, optimizer, lambda array, x: array.loss(x), threads=1, width=B) as runner:
        got = torch.stack([runner.step(x).losses() for x in batches])
        assert runner.mode == "captured"
    torch.testing.assert_close(got.T.flatten(), torch.stack(wanted), rtol=1e-10, atol=1e-12)


def test_counts_of_another_length_are_another_way():
    class Longest(Counted):
        def loss(self, x):
            counts = torch.bincount(x.abs().long().flatten())
            return self.weight.square().sum() * len(counts)

    batches = [torch.full((B, 3), float(most)).double() for most in (1, 1, 1, 2, 1, 2, 2, 1)]
    array = dnnsuite.fuse([Longest() for _ in range(B)])
    optimizer, ratios = optim.SGD(array.parameters(), lr=0.0), []
    with dnnsuite.StepRunner(array, optimizer, lambda array, x: array.loss(x), threads=1, width=B) as runner:
        for x in batches:
            ratios.append(runner.step(x).losses() / array.weight.detach().square().sum(1))
    torch.testing.assert_close(torch.stack(ratios), torch.stack([x[:, 0] + 1 for x in batches]))
