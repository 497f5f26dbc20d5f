# SPDX-License-Identifier: MIT
"""Adadelta for an array of models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from .. import ops
from ._base import ArrayOptimizer, Group, Hyper


class Adadelta(ArrayOptimizer):
    """`torch.optim.Adadelta` for B models (Zeiler, 2012, arXiv:1212.5701).

    With gradient g + weight_decay · w:  v ← ρ v + (1 - ρ) g²,  Δ = √(u + ε) / √(v + ε) · g,
    u ← ρ u + (1 - ρ) Δ²,  w ← w - lr Δ. Every argument is a number or one value per model.
    """

    torch_class = torch.optim.Adadelta
    per_model = ("lr", "rho", "eps", "weight_decay")

    def __init__(
        self, params: Iterable[Any], lr: Any = 1.0, rho: Any = 0.9, eps: Any = 1e-6, weight_decay: Any = 0
    ) -> None:
        super().__init__(params, {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay})

    def buffer_names(self, group: Group) -> tuple[str, ...]:
        return ("square_avg", "acc_delta")

    def apply(
        self, group: Group, params: list[torch.Tensor], grads: list[torch.Tensor], state: Any, hyper: Hyper
    ) -> None:
        ops.adadelta_(
            params,
            grads,
            [state[p]["square_avg"] for p in params],
            [state[p]["acc_delta"] for p in params],
            hyper["lr"],
            hyper["rho"],
            hyper["eps"],
            hyper["weight_decay"],
        )
