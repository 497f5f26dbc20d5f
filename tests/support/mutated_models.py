# SPDX-License-Identifier: MIT
"""A generator of models and of mutations between steps, and their training side by side with separate torch models."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.func import functional_call

import dnnsuite

nn = torch.nn


class Block(nn.Module):
    """A layer with Python state of every kind that its code looks at."""

    def __init__(self, layer: str, use: str) -> None:
        super().__init__()
        self.layer = {
            "linear": lambda: nn.Linear(4, 4),
            "norm": lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)),
            "layer norm": lambda: nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4), nn.LeakyReLU(0.1)),
            "parametrized": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
        }[layer]()
        self.use, self.scale, self.calls = use, 1.0, 0
        self.table, self.config = [1.0, 2.0], {"gain": 1.0}
        self.act: Any = torch.tanh
        self.drop = nn.Dropout(0.0)
        self.register_buffer("shift", torch.zeros(4))
        self.mix = nn.Parameter(torch.randn(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(_USES[self.use](self, x)) * self.scale


def _replaced(block: Block, x: torch.Tensor) -> torch.Tensor:
    weights = {name: value * block.mix for name, value in block.layer.named_parameters()}
    return functional_call(block.layer, weights, x) + block.layer(x)


def _counted(block: Block, x: torch.Tensor) -> torch.Tensor:
    block.calls += 1
    return block.layer(x) * (1.0 if block.calls < 4 else 0.5)


def _moved(block: Block, x: torch.Tensor) -> torch.Tensor:
    x = block.layer(x)
    block.shift = 0.5 * block.shift + 0.5 * x.detach().mean(0)
    return x - block.shift


def _asked(block: Block, x: torch.Tensor) -> torch.Tensor:
    first = block.layer[0] if isinstance(block.layer, nn.Sequential) else block.layer
    return block.layer(x) * (2.0 if isinstance(first, nn.Linear) else 1.0)


_USES: dict[str, Callable[[Block, torch.Tensor], torch.Tensor]] = {
    "plain": lambda block, x: block.drop(block.layer(x)),
    "table": lambda block, x: block.layer(x) * sum(block.table) + block.config["gain"] * x,
    "branch": lambda block, x: block.layer(x) if x.mean() > 0 else 2 * block.layer(x),
    "replaced": _replaced,
    "counted": _counted,
    "moved": _moved,
    "asked": _asked,
}


class Model(nn.Module):
    """Blocks in a row, ended by a linear layer."""

    def __init__(self, layers: list[str], uses: list[str]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(map(Block, layers, uses))
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def _layer(block: Any) -> Any:
    return block.layer[0] if isinstance(block.layer, nn.Sequential) else block.layer


def _write(block: Any) -> None:
    with torch.no_grad():
        block.mix.mul_(0.5)
        block.shift.add_(1.0)


def _freeze(block: Any) -> None:
    block.mix.requires_grad_(False)


def _norm(block: Any) -> None:
    for part in block.layer.modules():
        if hasattr(part, "eps"):
            part.eps = 0.1
        if hasattr(part, "momentum"):
            part.momentum = 0.3


#: Changes of a block of an array, or of a model, that mean the same for both.
MUTATIONS: dict[str, Callable[[Any], None]] = {
    "number": lambda block: setattr(block, "scale", 1.5),
    "list": lambda block: block.table.append(0.5),
    "item": lambda block: block.table.__setitem__(0, 3.0),
    "dict": lambda block: block.config.update(gain=2.0),
    "function": lambda block: setattr(block, "act", F.softplus),
    "counter": lambda block: setattr(block, "calls", 10),
    "in place": _write,
    "freeze": _freeze,
    "evaluate": lambda block: block.layer.eval() and None,
    "norm": _norm,
    "rate": lambda block: setattr(block.drop, "p", 1.0),  # nothing is left to chance
    "rate in place": lambda block: _drop_all(block.drop),
    "use": lambda block: setattr(block, "use", "plain"),
}


def _drop_all(layer: Any) -> None:
    if isinstance(layer.p, torch.Tensor):
        layer.p.fill_(1.0)
    else:
        layer.p = 1.0


class Case:
    """Models and mutations made from a seed."""

    def __init__(self, seed: int, B: int = 3, steps: int = 7) -> None:
        draw = random.Random(seed)
        kinds = ["linear", "norm", "layer norm", "parametrized"]
        count = draw.randint(1, 2)
        layers = [draw.choice(kinds) for _ in range(count)]
        uses = [draw.choice(list(_USES)) for _ in range(count)]
        self.seed, self.B, self.steps = seed, B, steps
        self.make = lambda: Model(layers, uses).double()
        changed = [(draw.randrange(1, steps), draw.choice(list(MUTATIONS)), draw.randrange(count)) for _ in range(3)]
        self.mutations = sorted(changed)
        self.differ = draw.choice([None, None, "scale", "calls", "slope"])
        self.name = f"{seed}: {layers} {uses} {self.mutations} {self.differ}"
        torch.manual_seed(seed)
        self.data = torch.randn(steps, B, 6, 4, dtype=torch.float64)

    def models(self) -> list[nn.Module]:
        models: list[nn.Module] = []
        for index in range(self.B):
            torch.manual_seed(1000 * self.seed + index)
            model = self.make()
            if self.differ == "scale":
                model.blocks[0].scale = 1.0 + index
            elif self.differ == "calls":
                model.blocks[0].calls = index
            elif self.differ == "slope":
                model.blocks[0].act = nn.LeakyReLU(0.1 * (index + 1))
            models.append(model)
        return models

    def _mutate(self, target: Any, step: int) -> None:
        for when, name, block in self.mutations:
            if when == step:
                MUTATIONS[name](target.blocks[block])

    def expected(self) -> torch.Tensor:
        """Losses `[steps, B]` of separate torch models."""
        losses = []
        for index, model in enumerate(self.models()):
            optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
            for step in range(self.steps):
                self._mutate(model, step)
                optimizer.zero_grad()
                loss = model(self.data[step, index]).square().mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
        return torch.stack(losses).view(self.B, self.steps).T

    def found(self, width: int = 0, threads: int = 1, capture: bool = True) -> torch.Tensor:
        """Losses `[steps, B]` of an array; `width` 0 is without a StepRunner."""
        array = dnnsuite.fuse(self.models())
        optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.05, momentum=0.9)
        losses = []

        def function(array: Any, x: torch.Tensor) -> torch.Tensor:
            return array(x).square().mean((1, 2))

        if not width:
            for step in range(self.steps):
                self._mutate(array, step)
                optimizer.zero_grad()
                loss = function(array, self.data[step])
                loss.sum().backward()
                optimizer.step()
                losses.append(loss.detach())
            return torch.stack(losses)
        with dnnsuite.StepRunner(array, optimizer, function, threads=threads, width=width, capture=capture) as runner:
            for step in range(self.steps):
                self._mutate(array, step)
                losses.append(runner.step(self.data[step]).losses().clone())
        return torch.stack(losses)
