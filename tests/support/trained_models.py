# SPDX-License-Identifier: MIT
"""The contract of training, written once: an array and a runner train B models as B loops of torch do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import dnnsuite
from dnnsuite import optim
from helpers import assert_near, make_models

STEPS = 5


def squares(model: Any, *batch: torch.Tensor) -> torch.Tensor:
    """The mean of squares of what each model of an array computes."""
    output = model(*batch)
    return output.square().flatten(1).mean(1)


def batches(shapes: tuple[tuple[int, ...], ...], B: int, steps: int = STEPS) -> list[tuple[torch.Tensor, ...]]:
    """Batches `[B, ...]` of float64 numbers, one for each step."""
    numbers = torch.Generator().manual_seed(0)
    return [
        tuple(torch.randn(B, *shape, generator=numbers, dtype=torch.float64) for shape in shapes) for _ in range(steps)
    ]


def check_trained(
    make: Callable[[], torch.nn.Module],
    *shapes: tuple[int, ...],
    B: int = 2,
    loss: Callable[..., torch.Tensor] = squares,
    between: Callable[[Any], None] = lambda model: None,
    seen: Callable[[Any], Any] = lambda model: None,
    runner: bool = True,
    steps: int = STEPS,
    **options: Any,
) -> torch.nn.Module:
    """Train models that `make` makes apart, by hand and by a runner with `options`, and compare losses, state and what
    is `seen` in each model at the end. `between` changes a model, or an array of them, after each step."""
    shapes = shapes or ((5, 4),)
    lr = [0.02 / (i + 1) for i in range(B)]
    data = batches(shapes, B, steps)
    apart = make_models(make, B, torch.float64)
    mine = [optim_of(model, rate) for model, rate in zip(apart, lr, strict=True)]
    losses = []
    for batch in data:
        losses.append([])
        for index, (model, optimizer) in enumerate(zip(apart, mine, strict=True)):
            optimizer.zero_grad()
            value = _one(loss, model, [x[index] for x in batch])
            value.backward()
            optimizer.step()
            between(model)
            losses[-1].append(value.detach())
    for by_runner in (False, True)[: 1 + runner]:
        array = dnnsuite.fuse(make_models(make, B, torch.float64))
        trained = [parameter for parameter in array.parameters() if parameter.requires_grad]
        optimizer = optim.AdamW(trained, lr=lr, eps=1e-3)
        train = _by_runner if by_runner else _by_hand
        for values, expected in zip(train(array, optimizer, loss, data, between, options), losses, strict=True):
            assert_near(values, torch.stack(expected), f"losses, runner: {by_runner}")
        for model, expected in zip(dnnsuite.unfuse(array), apart, strict=True):
            for name, value in expected.state_dict().items():
                if isinstance(value, torch.Tensor) and not value.is_floating_point():
                    assert model.state_dict()[name].equal(value), name
                elif isinstance(value, torch.Tensor):
                    assert_near(_dense(model.state_dict()[name]), _dense(value), f"{name}, runner: {by_runner}")
            assert seen(model) == seen(expected)
    return array


def optim_of(model: torch.nn.Module, lr: float) -> torch.optim.Optimizer:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(trained, lr=lr, eps=1e-3)


def _one(loss: Any, model: Any, batch: list[torch.Tensor]) -> torch.Tensor:
    return model(*batch).square().mean() if loss is squares else loss(model, *batch)


def _dense(value: torch.Tensor) -> torch.Tensor:
    return value if value.layout == torch.strided else value.to_dense()


def _by_hand(array: Any, optimizer: Any, loss: Any, data: Any, between: Any, options: Any) -> Any:
    for batch in data:
        optimizer.zero_grad()
        values = loss(array, *batch)
        values.sum().backward()
        optimizer.step()
        between(array)
        yield values.detach()


def _by_runner(array: Any, optimizer: Any, loss: Any, data: Any, between: Any, options: Any) -> Any:
    with dnnsuite.StepRunner(array, optimizer, loss, **({"threads": 1} | options)) as runner:
        for batch in data:
            values = runner.step(*batch).losses().clone()
            between(array)
            yield values
