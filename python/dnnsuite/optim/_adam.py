# SPDX-License-Identifier: MIT
"""Adam and those after it, for an array of models."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from ._base import ArrayOptimizer
from ._plan import Group, Hyper


class Adam(ArrayOptimizer):
    """`torch.optim.Adam` for B models (Kingma and Ba, 2015); every number may be one per model.

    m ← β₁ m + (1 - β₁) g,  v ← β₂ v + (1 - β₂) g²,  w ← w - lr · m̂ / (√v̂ + ε), with m̂ and v̂ corrected for the
    step count of the model. `betas` is a pair, each of the two a number or one per model. With
    `decoupled_weight_decay` it is AdamW. See :class:`ArrayOptimizer` for the options that all optimizers have.

    >>> from dnnsuite import nn, optim
    >>> array = nn.Linear(4, 2, B=3)
    >>> optimizer = optim.Adam(array.parameters(), lr=1e-3, betas=([0.9, 0.8, 0.7], 0.999))
    >>> optimizer.param_groups[0]["beta1"].tolist()
    [0.9, 0.8, 0.7]
    """

    torch_class = torch.optim.Adam
    per_model: ClassVar[Any] = ("lr", "beta1", "beta2", "eps", "weight_decay")
    pairs: ClassVar[Any] = {"betas": ("beta1", "beta2")}
    flags: ClassVar[Any] = ("maximize", "amsgrad", "decoupled_weight_decay")

    def rule(self, group: Group, hyper: Hyper) -> str:
        return "amsgrad" if group["amsgrad"] else "adam"


class AdamW(Adam):
    """`torch.optim.AdamW` for B models (Loshchilov and Hutter, 2019): `Adam` after w ← (1 - lr · weight_decay) w.

    >>> from dnnsuite import nn, optim
    >>> optimizer = optim.AdamW(nn.Linear(2, 1, B=2).parameters(), lr=1e-3, weight_decay=[0.1, 0.0])
    >>> optimizer.param_groups[0]["weight_decay"].tolist()
    [0.1, 0.0]
    """

    torch_class: ClassVar[Any] = torch.optim.AdamW
    fixed: ClassVar[Any] = {"decoupled_weight_decay": True}
    flags = ("maximize", "amsgrad")


class NAdam(ArrayOptimizer):
    """`torch.optim.NAdam` for B models (Dozat, 2016): Adam with Nesterov's momentum, warmed up by `momentum_decay`."""

    torch_class = torch.optim.NAdam
    per_model = ("lr", "beta1", "beta2", "eps", "weight_decay", "momentum_decay")
    pairs = Adam.pairs
    flags = ("maximize", "decoupled_weight_decay")
    formula_name = "nadam"


class RAdam(ArrayOptimizer):
    """`torch.optim.RAdam` for B models (Liu et al., 2020): momentum alone until the second moment can be trusted."""

    torch_class = torch.optim.RAdam
    per_model = Adam.per_model
    pairs = Adam.pairs
    flags = ("maximize", "decoupled_weight_decay")
    formula_name = "radam"


class Adamax(ArrayOptimizer):
    """`torch.optim.Adamax` for B models (Kingma and Ba, 2015): divides by the largest gradient, decaying."""

    torch_class = torch.optim.Adamax
    per_model = Adam.per_model
    pairs = Adam.pairs
    formula_name = "adamax"
