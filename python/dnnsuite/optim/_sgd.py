# SPDX-License-Identifier: MIT
"""Optimizers that step along the gradient or its sign, for an array of models."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from ..errors import InvalidArgument
from ._base import ArrayOptimizer
from ._plan import Group, Hyper


class SGD(ArrayOptimizer):
    """`torch.optim.SGD` for B models; every number may be one per model.

    With gradient g + weight_decay · w: without momentum w ← w - lr g; with it b ← μ b + (1 - dampening) g, b starting
    at g, and w ← w - lr b, or w - lr (g + μ b) with `nesterov`. See :class:`ArrayOptimizer` for the options that all
    optimizers have.

    >>> import torch
    >>> from dnnsuite import nn, optim
    >>> array = nn.Linear(1, 1, bias=False, B=2)
    >>> _ = torch.nn.init.ones_(array.weight)
    >>> optimizer = optim.SGD(array.parameters(), lr=[0.1, 0.5])
    >>> array(torch.ones(2, 1, 1)).sum().backward()
    >>> optimizer.step()
    >>> [round(weight, 2) for weight in array.weight.flatten().tolist()]
    [0.9, 0.5]
    """

    torch_class = torch.optim.SGD
    per_model = ("lr", "momentum", "dampening", "weight_decay")
    flags = ("maximize", "nesterov")

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        if group["nesterov"]:
            plain = (group["momentum"] <= 0) | (group["dampening"] != 0)
            if bool(plain.any()):
                raise InvalidArgument("nesterov needs momentum > 0 and dampening = 0 in every model")

    def rule(self, group: Group, hyper: Hyper) -> str:
        return "sgd_momentum" if self.any_momentum(hyper) else "sgd"


class ASGD(ArrayOptimizer):
    """`torch.optim.ASGD` for B models (Polyak and Juditsky, 1992): the average is the state `ax`."""

    torch_class = torch.optim.ASGD
    per_model = ("lr", "lambd", "alpha", "t0", "weight_decay")
    formula_name = "asgd"


class Lion(ArrayOptimizer):
    """Lion for B models (Chen et al., 2023, arXiv:2302.06675); torch has none.

    w ← (1 - lr · weight_decay) w - lr · sign(β₁ m + (1 - β₁) g), then m ← β₂ m + (1 - β₂) g.
    """

    arguments: ClassVar[Any] = {"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0, "maximize": False}
    per_model = ("lr", "beta1", "beta2", "weight_decay")
    pairs: ClassVar[Any] = {"betas": ("beta1", "beta2")}
    formula_name = "lion"


class Rprop(ArrayOptimizer):
    """`torch.optim.Rprop` for B models (Riedmiller and Braun, 1993): a step size per weight, by the gradient's sign."""

    torch_class = torch.optim.Rprop
    per_model = ("lr", "etaminus", "etaplus", "step_size_min", "step_size_max")
    pairs: ClassVar[Any] = {"etas": ("etaminus", "etaplus"), "step_sizes": ("step_size_min", "step_size_max")}
    formula_name = "rprop"
