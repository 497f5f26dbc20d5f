# SPDX-License-Identifier: MIT
"""Optimizers that divide by the root of an average or sum of squared gradients, for an array of models."""

from __future__ import annotations

import torch

from ..ops.shared import beside
from ._base import ArrayOptimizer
from ._plan import Group, Hyper


class Adadelta(ArrayOptimizer):
    """`torch.optim.Adadelta` for B models (Zeiler, 2012, arXiv:1212.5701).

    With gradient g + weight_decay · w:  v ← ρ v + (1 - ρ) g²,  Δ = √(u + ε) / √(v + ε) · g,
    u ← ρ u + (1 - ρ) Δ²,  w ← w - lr Δ. Every argument is a number or one value per model.
    """

    torch_class = torch.optim.Adadelta
    per_model = ("lr", "rho", "eps", "weight_decay")
    formula_name = "adadelta"


class Adagrad(ArrayOptimizer):
    """`torch.optim.Adagrad` for B models (Duchi, Hazan and Singer, 2011).

    s ← s + g²,  w ← w - lr / (1 + (t - 1) lr_decay) · g / (√s + ε), s starting at `initial_accumulator_value`.
    """

    torch_class = torch.optim.Adagrad
    per_model = ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")
    formula_name = "adagrad"

    def start_state(self, name: str, value: torch.Tensor, hyper: Hyper) -> torch.Tensor:
        start = hyper["initial_accumulator_value"].to(value.dtype)
        return value.add_(beside(start, value))


class RMSprop(ArrayOptimizer):
    """`torch.optim.RMSprop` for B models (Hinton, 2012); `centered` subtracts the squared mean (Graves, 2013)."""

    torch_class = torch.optim.RMSprop
    per_model = ("lr", "alpha", "eps", "weight_decay", "momentum")
    flags = ("maximize", "centered")

    def rule(self, group: Group, hyper: Hyper) -> str:
        momentum = "_momentum" if self.any_momentum(hyper) else ""
        return f"rmsprop{'_centered' if group['centered'] else ''}{momentum}"
