# SPDX-License-Identifier: MIT
"""Adam for an array of models."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch

from .. import ops
from ._base import ArrayOptimizer, Group, Hyper


class Adam(ArrayOptimizer):
    """`torch.optim.Adam` for B models (Kingma and Ba, 2015).

    m ← β₁ m + (1 - β₁) g,  v ← β₂ v + (1 - β₂) g²,  w ← w - lr · m̂ / (√v̂ + ε), with m̂ and v̂ corrected for the step
    count of the model. `betas` is a pair; each of the two, and every other argument but `amsgrad`, is a number or one
    value per model.
    """

    torch_class: ClassVar[Callable[..., torch.optim.Optimizer]] = torch.optim.Adam
    per_model = ("lr", "beta1", "beta2", "eps", "weight_decay")
    decoupled = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: Any = 1e-8,
        weight_decay: Any = 0,
        amsgrad: bool = False,
    ) -> None:
        beta1, beta2 = betas
        defaults = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**defaults, "amsgrad": amsgrad})

    def buffer_names(self, group: Group) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if group["amsgrad"] else ()))

    def apply(
        self, group: Group, params: list[torch.Tensor], grads: list[torch.Tensor], state: Any, hyper: Hyper
    ) -> None:
        ops.adam_(
            params,
            grads,
            [state[p]["exp_avg"] for p in params],
            [state[p]["exp_avg_sq"] for p in params],
            [state[p]["max_exp_avg_sq"] for p in params] if group["amsgrad"] else [],
            group["steps"],
            hyper["lr"],
            hyper["beta1"],
            hyper["beta2"],
            hyper["eps"],
            hyper["weight_decay"],
            self.decoupled,
        )

    def _model_arguments(self, group: Group, index: int) -> Group:
        arguments = super()._model_arguments(group, index)
        betas = (arguments.pop("beta1"), arguments.pop("beta2"))
        return {**arguments, "betas": betas, "amsgrad": group["amsgrad"]}
