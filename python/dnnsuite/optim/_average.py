# SPDX-License-Identifier: MIT
"""Optimizers that divide by the root of an average or sum of squared gradients, for an array of models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ._base import ArrayOptimizer
from ._plan import Group, Hyper


class Adadelta(ArrayOptimizer):
    """`torch.optim.Adadelta` for B models (Zeiler, 2012, arXiv:1212.5701).

    With gradient g + weight_decay · w:  v ← ρ v + (1 - ρ) g²,  Δ = √(u + ε) / √(v + ε) · g,
    u ← ρ u + (1 - ρ) Δ²,  w ← w - lr Δ. Every argument is a number or one value per model.
    """

    torch_class = torch.optim.Adadelta
    per_model = ("lr", "rho", "eps", "weight_decay")

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1.0,
        rho: Any = 0.9,
        eps: Any = 1e-6,
        weight_decay: Any = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        **options: Any,
    ) -> None:
        defaults = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, defaults, **options)

    def rule(self, group: Group, hyper: Hyper) -> str:
        return "adadelta"


class Adagrad(ArrayOptimizer):
    """`torch.optim.Adagrad` for B models (Duchi, Hazan and Singer, 2011).

    s ← s + g²,  w ← w - lr / (1 + (t - 1) lr_decay) · g / (√s + ε), s starting at `initial_accumulator_value`.
    """

    torch_class = torch.optim.Adagrad
    per_model = ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        lr_decay: Any = 0,
        weight_decay: Any = 0,
        initial_accumulator_value: Any = 0,
        eps: Any = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        **options: Any,
    ) -> None:
        defaults = {"lr": lr, "lr_decay": lr_decay, "weight_decay": weight_decay, "eps": eps}
        start = {"initial_accumulator_value": initial_accumulator_value, "maximize": maximize}
        super().__init__(params, {**defaults, **start}, **options)

    def rule(self, group: Group, hyper: Hyper) -> str:
        return "adagrad"

    def start_state(self, name: str, value: torch.Tensor, hyper: Hyper) -> torch.Tensor:
        start = hyper["initial_accumulator_value"].to(value.dtype)
        return value.add_(start.view(-1, *[1] * (value.dim() - 1)))


class RMSprop(ArrayOptimizer):
    """`torch.optim.RMSprop` for B models (Hinton, 2012); `centered` subtracts the squared mean (Graves, 2013)."""

    torch_class = torch.optim.RMSprop
    per_model = ("lr", "alpha", "eps", "weight_decay", "momentum")
    flags = ("maximize", "centered")

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        alpha: Any = 0.99,
        eps: Any = 1e-8,
        weight_decay: Any = 0,
        momentum: Any = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        **options: Any,
    ) -> None:
        defaults = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(params, {**defaults, "centered": centered, "maximize": maximize}, **options)

    def rule(self, group: Group, hyper: Hyper) -> str:
        momentum = "_momentum" if self.any_momentum(hyper) else ""
        return f"rmsprop{'_centered' if group['centered'] else ''}{momentum}"
