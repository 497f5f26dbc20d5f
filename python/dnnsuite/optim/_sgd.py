# SPDX-License-Identifier: MIT
"""Stochastic gradient descent for an array of models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from .. import ops
from ..errors import InvalidArgument
from ._base import ArrayOptimizer, Group, Hyper


class SGD(ArrayOptimizer):
    """`torch.optim.SGD` for B models.

    With gradient g + weight_decay · w: without momentum w ← w - lr g; with it b ← μ b + (1 - dampening) g, b starting
    at g, and w ← w - lr b, or w - lr (g + μ b) with `nesterov`. Every argument but `nesterov` is a number or one value
    per model.
    """

    torch_class = torch.optim.SGD
    per_model = ("lr", "momentum", "dampening", "weight_decay")

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        momentum: Any = 0,
        dampening: Any = 0,
        weight_decay: Any = 0,
        nesterov: bool = False,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
        super().__init__(params, {**defaults, "nesterov": nesterov})

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        plain = bool((group["momentum"] <= 0).any()) or bool((group["dampening"] != 0).any())
        if group["nesterov"] and plain:
            raise InvalidArgument("nesterov needs momentum > 0 and dampening = 0 in every model")

    def buffer_names(self, group: Group) -> tuple[str, ...]:
        return ("momentum_buffer",) if bool((group["momentum"] != 0).any()) else ()

    def apply(
        self, group: Group, params: list[torch.Tensor], grads: list[torch.Tensor], state: Any, hyper: Hyper
    ) -> None:
        buffers = [state[p]["momentum_buffer"] for p in params if "momentum_buffer" in state[p]]
        # torch starts b at g, and uses g itself in a model without momentum. From a buffer of zeros both are b ← g.
        undamped = (group["steps"] == 1) | (hyper["momentum"] == 0)
        dampening = torch.where(undamped, 0.0, hyper["dampening"])
        ops.sgd_(
            params,
            grads,
            buffers,
            hyper["lr"],
            hyper["momentum"],
            dampening,
            hyper["weight_decay"],
            group["nesterov"],
            False,
        )

    def _model_arguments(self, group: Group, index: int) -> Group:
        return {**super()._model_arguments(group, index), "nesterov": group["nesterov"]}

    def _model_state(self, state: dict[str, Any], steps: torch.Tensor, index: int) -> dict[str, Any]:
        return {name: value[index].clone() for name, value in state.items()}
