# SPDX-License-Identifier: MIT
"""Optimizers whose formula is the operator's: along the gradient or its sign, by moments of it, or divided by the root
of an average or sum of its squares."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from ..errors import InvalidArgument
from ..ops.shared import beside
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
