# SPDX-License-Identifier: MIT
"""A part of a model that may draw numbers begins anew late: the module around it has kept its state for it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import dnnsuite

B, STEPS, LATE = 3, 6, 3


class Inner(nn.Module):
    """Counts its calls in a buffer, and begins to do something else in a late one."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.layer, self.norm, self.way, self.late = nn.Linear(4, 4), nn.BatchNorm1d(4), way, False
        self.register_buffer("calls", torch.zeros(()))
        self.seen: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen.append(len(self.seen))
        h = self.norm(self.layer(x))
        if self.late:
            if self.way == "draw":
                h = h + torch.zeros(4).normal_() * 0 + 1
            elif self.way == "value":
                h = h * (2.0 if h.detach()[0, 0] > 0 else 3.0)
            elif self.way == "caught":
                h = h + float(h.detach()[0, 0] > 0)
        return h


class Middle(nn.Module):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.inner, self.norm = Inner(way), nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.inner(x))


class Outer(nn.Module):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.first, self.middle, self.last = Middle("none"), Middle(way), Middle("none")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        try:
            x = self.middle(x)
        except Exception:  # code that catches all gets no error of the array's
            x = x + 1
        return self.last(x).pow(2).mean() + torch.rand(()) * 0


@pytest.mark.parametrize("way", ["draw", "value", "caught"])
def test_a_part_that_fails_late_leaves_no_trace_of_its_first_try(way: str) -> None:
    torch.manual_seed(0)
    models = [Outer(way).double() for _ in range(B)]
    for index, model in enumerate(models):  # models decide in other ways
        model.middle.norm.weight.data += index
    array: Any = dnnsuite.fuse(copy.deepcopy(models))
    for step in range(STEPS):
        batch = torch.randn(B, 8, 4, dtype=torch.float64)
        if step == LATE:
            for model in (array, *models):
                model.middle.inner.late = True
        losses = array(batch)
        losses.sum().backward()
        for index, model in enumerate(models):
            loss = model(batch[index])
            loss.backward()
            torch.testing.assert_close(losses[index], loss)
    for got, model in zip(dnnsuite.unfuse(array), models, strict=True):
        for name, value in model.state_dict().items():
            torch.testing.assert_close(got.state_dict()[name], value)
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                index = models.index(model)
                torch.testing.assert_close(array.get_parameter(name).grad[index], parameter.grad)
        assert got.middle.inner.seen == model.middle.inner.seen
