# SPDX-License-Identifier: MIT
"""`parameter.data = ...` between steps, as momentum encoders and projections write it: a replay uses the new memory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

import dnnsuite
from dnnsuite import optim

B = 4
After = Callable[[Any], None]


class Twin(nn.Module):
    """A trained encoder and one that follows it."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = (nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)) for _ in range(2))
        self.k.requires_grad_(False)

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        return (self.q(x) - self.k(x.flip(0))).pow(2).mean()


def momentum(model: Any) -> None:
    for q, k in zip(model.q.parameters(), model.k.parameters(), strict=True):
        k.data = k.data * 0.9 + q.data * 0.1


def projected(model: Any) -> None:
    for q in model.q.parameters():
        q.data = q.data.clamp(-0.3, 0.3)


def aliased(model: Any) -> None:
    for q, k in zip(model.q.parameters(), model.k.parameters(), strict=True):
        k.data = q.data


def swapped(model: Any) -> None:
    """Evaluate with other values, and come back to the old memory."""
    kept = [q.data for q in model.q.parameters()]
    for q in model.q.parameters():
        q.data = torch.zeros_like(q.data)
    for q, own in zip(model.q.parameters(), kept, strict=True):
        q.data = own


def exchanged(model: Any) -> None:
    """Both encoders take each other's memory."""
    for q, k in zip(model.q.parameters(), model.k.parameters(), strict=True):
        q.data, k.data = k.data, q.data


def turned(model: Any) -> None:
    """Another memory order of the same values."""
    weight = model.q[0].weight
    weight.data = weight.data.transpose(-1, -2).contiguous().transpose(-1, -2)


def batches(steps: int) -> list[list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [[torch.randn(6, 3, generator=generator, dtype=torch.float64) for _ in range(B)] for _ in range(steps)]


def models() -> list[Twin]:
    torch.manual_seed(0)
    return [Twin().double() for _ in range(B)]


PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "adam": (lambda p: optim.AdamW(p, lr=0.03), lambda p: torch.optim.AdamW(p, lr=0.03)),
    "sgd": (lambda p: optim.SGD(p, lr=0.1, momentum=0.9), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
}


def compare(after: After, kind: str = "adam", steps: int = 24, every: int = 1, **settings: Any) -> str:
    """Train with a runner and one by one; return the runner's mode."""
    ours, theirs = PAIRS[kind]
    each = models()
    array = dnnsuite.fuse(copy.deepcopy(each))
    optimizers = [theirs([p for p in model.parameters() if p.requires_grad]) for model in each]
    optimizer = ours([p for p in array.parameters() if p.requires_grad])
    with dnnsuite.StepRunner(array, optimizer, lambda array, x: array.loss(x), **settings) as runner:
        for number, own in enumerate(batches(steps)):
            expected = []
            for model, one, x in zip(each, optimizers, own, strict=True):
                one.zero_grad()
                loss = model.loss(x)
                loss.backward()
                one.step()
                expected.append(loss.detach())
            torch.testing.assert_close(runner.step(dnnsuite.stack(own)).losses(), torch.stack(expected))
            for model in (array, *each) if number % every == 0 else ():
                after(model)
        mode = runner.mode
    same_state(array, each)
    return mode


def same_state(array: Any, each: Sequence[nn.Module]) -> None:
    for got, model in zip(dnnsuite.unfuse(array), each, strict=True):
        for name, value in model.state_dict().items():
            torch.testing.assert_close(got.state_dict()[name], value)


@pytest.mark.parametrize("settings", [{}, {"width": 1}, {"width": 3}, {"threads": 2}], ids=str)
@pytest.mark.parametrize("after", [momentum, projected, swapped, exchanged])
def test_a_replay_uses_the_memory_that_parameters_have_now(after: After, settings: dict[str, Any]) -> None:
    for kind in PAIRS:
        assert compare(after, kind, **({"threads": 1} | settings)) == "captured"


@pytest.mark.parametrize("settings", [{}, {"width": 1}, {"threads": 2}], ids=str)
@pytest.mark.parametrize("after", [aliased, turned])
def test_memory_that_is_shared_or_turned_is_seen(after: After, settings: dict[str, Any]) -> None:
    compare(after, every=5, **({"threads": 1} | settings))


def test_audits_pass_where_parameters_move() -> None:
    compare(momentum, threads=1, audit=1)
    compare(projected, threads=1, audit=1)
