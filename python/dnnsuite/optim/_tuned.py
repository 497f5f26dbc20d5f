# SPDX-License-Identifier: MIT
"""Optimizers that need no schedule: averaging takes its place, or the distance travelled sets the rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch

from .. import _under_way as under_way
from ..errors import InvalidArgument
from ..ops.shared import beside
from ._group import Group
from ._plan import Hyper
from ._written import Entry, WrittenOptimizer


class SGDScheduleFree(WrittenOptimizer):
    """Schedule-free SGD for B models (Defazio et al., 2024, arXiv:2405.15682); torch has none.

    Gradients are computed at y = (1 - momentum) z + momentum x, where z takes the steps and x is their average. Call
    `train()` before training and `eval()` before evaluation or saving: the parameters are y in training, else x.
    """

    arguments: ClassVar[Any] = {
        **{"lr": 1.0, "momentum": 0.9, "weight_decay": 0, "warmup_steps": 0, "r": 0.0, "weight_lr_power": 2.0}
    }
    fixed: ClassVar[Any] = {"train_mode": False}
    per_model: ClassVar[Any] = ("lr", "momentum", "weight_decay", "warmup_steps", "r", "weight_lr_power")
    flags: ClassVar[Any] = ("train_mode",)
    counters = ("k", "weight_sum", "lr_max")
    states: ClassVar[Any] = ("z",)
    share = "momentum"  # the weight of x in y

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        if not bool((group[self.share] > 0).all()):
            raise InvalidArgument(f"{type(self).__name__} needs a {self.share} above 0 in every model")

    def train(self) -> None:
        """Set the parameters to the point of training."""
        self._turn(True)

    def eval(self) -> None:
        """Set the parameters to the average, for evaluation, saving and use."""
        self._turn(False)

    @torch.no_grad()
    def _turn(self, train: bool) -> None:
        under_way.finish(self)
        for group in self.own_groups():
            if group["train_mode"] is train:
                continue
            weight = 1 - group[self.share] if train else 1 - 1 / group[self.share]
            for parameter in group["params"]:
                row = self.state.get(parameter)
                if row and "z" in row:
                    turned = torch.lerp(parameter, row["z"], beside(weight.to(parameter.dtype), parameter))
                    parameter.copy_(torch.where(beside(row["step"] > 0, parameter), turned, parameter))
            group["train_mode"] = train

    def begin(self, group: Group, hyper: Hyper, active: torch.Tensor) -> Hyper:
        if not group["train_mode"]:
            raise InvalidArgument(
                f"{type(self).__name__} steps in training mode only: call optimizer.train() before training, and "
                "optimizer.eval() before evaluation"
            )
        k, warmup = group["k"] + 1, hyper["warmup_steps"]
        lr = torch.where(k <= warmup, hyper["lr"] * k / warmup, hyper["lr"])
        largest = torch.maximum(lr, group["lr_max"])
        weight = k ** hyper["r"] * largest ** hyper["weight_lr_power"]
        total = group["weight_sum"] + weight
        share = torch.where(total != 0, weight / total, 0.0)
        for name, value in (("k", k), ("lr_max", largest), ("weight_sum", total)):
            group[name].copy_(torch.where(active, value, group[name]))
        return {**hyper, "lr": lr, "k": k, "ckp1": share}

    def direction(self, entry: Entry) -> dict[str, torch.Tensor]:
        """Compute the direction of a step, as "value", and its states."""
        return {"value": entry.grad}

    def formula(self, entry: Entry, group: Group) -> dict[str, torch.Tensor]:
        lr, beta, decay, share = entry.hyper("lr", self.share, "weight_decay", "ckp1")
        found = self.direction(entry)
        z, move = entry.started("z"), found["value"] + decay * entry.value
        y = torch.lerp(entry.value, z, share) + lr * (beta * (1 - share) - 1) * move
        return {**found, "value": y, "z": z - lr * move}


class AdamWScheduleFree(SGDScheduleFree):
    """Schedule-free AdamW for B models (Defazio et al., 2024): `SGDScheduleFree` with Adam's second moment."""

    arguments: ClassVar[Any] = {
        **{"lr": 0.0025, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0, "warmup_steps": 0, "r": 0.0},
        "weight_lr_power": 2.0,
    }
    per_model = ("lr", "beta1", "beta2", "eps", "weight_decay", "warmup_steps", "r", "weight_lr_power")
    pairs: ClassVar[Any] = {"betas": ("beta1", "beta2")}
    states = ("z", "exp_avg_sq")
    share = "beta1"

    def direction(self, entry: Entry) -> dict[str, torch.Tensor]:
        beta2, eps, k = entry.hyper("beta2", "eps", "k")
        square = torch.lerp(entry.grad.square(), entry["exp_avg_sq"], beta2)
        return {"value": entry.grad / ((square / (1 - beta2**k)).sqrt() + eps), "exp_avg_sq": square}


class Prodigy(WrittenOptimizer):
    """Prodigy for B models (Mishchenko and Defazio, 2024, arXiv:2306.06101); torch has none.

    Adam with the rate d · lr. Each model's d grows from `d0` with the distance that its parameters have travelled, and
    with how straight that path was. `beta3` is the root of `beta2` if None. All groups have the same `lr`, or 0.
    """

    arguments: ClassVar[Any] = {
        **{"lr": 1.0, "betas": (0.9, 0.999), "beta3": None, "eps": 1e-8, "weight_decay": 0, "decouple": True},
        **{"use_bias_correction": False, "safeguard_warmup": False, "d0": 1e-6, "d_coef": 1.0},
        **{"growth_rate": float("inf"), "slice_p": 1},
    }
    per_model = ("lr", "beta1", "beta2", "beta3", "eps", "weight_decay", "d0", "d_coef", "growth_rate")
    pairs: ClassVar[Any] = {"betas": ("beta1", "beta2")}
    flags = ("decouple", "use_bias_correction", "safeguard_warmup", "slice_p")
    counters = ("k", "d", "d_max", "d_numerator")
    states = ("exp_avg", "exp_avg_sq", "s", "p0")

    def _check_group(self, group: Group) -> None:
        if group["beta3"] is None:
            group["beta3"] = torch.as_tensor(group["beta2"], dtype=torch.float64).sqrt()
        super()._check_group(group)

    def rule(self, group: Group, hyper: Hyper) -> str:
        rates = [g["lr"] for g in self.param_groups] if len(self.param_groups) > 1 else []
        if rates and bool(((torch.stack(rates) != torch.stack(rates).amax(0)) & (torch.stack(rates) != 0)).any()):
            raise InvalidArgument("Prodigy has one lr for all groups of a model, or 0 for those that stand still")
        return super().rule(group, hyper)

    def zeros(self, name: str, parameter: torch.Tensor) -> torch.Tensor:
        full = super().zeros(name, parameter)
        return full if name.startswith("exp") else torch.zeros_like(_part(full, self._slice))

    @property
    def _slice(self) -> int:
        return int(self.param_groups[0]["slice_p"])

    def update_groups(
        self,
        groups: Sequence[Group],
        state: Any,
        hypers: Sequence[Mapping[str, torch.Tensor]],
        factor: torch.Tensor | None,
        active: torch.Tensor,
    ) -> None:
        first, own = groups[0], hypers[0]
        self.rule(first, own)
        fresh = first["k"] == 0
        d0, lr = own["d0"], torch.stack([hyper["lr"] for hyper in hypers]).amax(0)
        d, largest = (torch.where(fresh, d0, first[name]) for name in ("d", "d_max"))
        k = first["k"] + 1
        rate = d * lr
        if first["use_bias_correction"]:
            rate = rate * (1 - own["beta2"] ** k).sqrt() / (1 - own["beta1"] ** k)
        entries = [
            list(self.entries(group, group["params"], state, {**hyper, "d": d, "rate": rate}, factor, active))
            for group, hyper in zip(groups, hypers, strict=True)
        ]
        travelled, length = torch.zeros_like(d), torch.zeros_like(d)
        for group, each in zip(groups, entries, strict=True):
            for entry in each:
                along, own_length = self._look(entry, group, first["decouple"])
                travelled, length = travelled + along, length + own_length
        moving = active & (length != 0)
        numerator = first["d_numerator"] * own["beta3"] + travelled * rate * d / d0
        estimate = own["d_coef"] * numerator / length
        grown = torch.where(d == d0, torch.maximum(d, estimate), d)
        most = torch.maximum(largest, estimate)
        following = torch.where(lr > 0, torch.minimum(most, grown * own["growth_rate"]), d)
        new = {"k": k, "d": following, "d_max": torch.where(lr > 0, most, largest), "d_numerator": numerator}
        for group, each in zip(groups, entries, strict=True):
            for name, value in new.items():
                group[name].copy_(torch.where(moving, value, group[name]))
            for entry in each:
                self._move(entry, group, entry.spread(following), first["decouple"], moving)

    def _look(self, entry: Entry, group: Group, decouple: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Update a parameter's averages; return how far its gradient says it has come, and its length `[B]`."""
        beta1, beta2, beta3, decay, d, d0, rate, lr = entry.hyper(
            *("beta1", "beta2", "beta3", "weight_decay", "d", "d0", "rate", "lr")
        )
        if not decouple:
            entry.grad = entry.grad + decay * entry.value
        grad, now = (_part(t, self._slice) for t in (entry.grad, entry.value))
        column = (-1, 1)
        p0 = torch.where(entry.step.view(column) == 1, now, entry["p0"])
        along = (grad * (p0 - now)).sum(1)
        pace = d / d0 * (d if group["safeguard_warmup"] else rate)
        s = beta3.view(column) * entry["s"] + pace.view(column) * grad
        means = {
            "exp_avg": beta1 * entry["exp_avg"] + d * (1 - beta1) * entry.grad,
            "exp_avg_sq": beta2 * entry["exp_avg_sq"] + d * d * (1 - beta2) * entry.grad.square(),
        }
        going = entry.active & (lr.flatten() > 0)
        entry.write(p0=p0)
        entry.write(where=going, s=s, **means)
        return (torch.where(going, value, 0.0).double() for value in (along, s.abs().sum(1)))  # type: ignore[return-value]

    def _move(self, entry: Entry, group: Group, d: torch.Tensor, decouple: bool, moving: torch.Tensor) -> None:
        eps, decay, rate, beta1 = entry.hyper("eps", "weight_decay", "rate", "beta1")
        direction = torch.where(beta1 > 0, entry["exp_avg"], d * entry.grad)
        w = entry.value - decay * rate * entry.value if decouple else entry.value
        where = moving & entry.active
        entry.write(w - rate * direction / (entry["exp_avg_sq"].sqrt() + d * eps), where)
        entry.row["step"].add_(where)


def _part(tensor: torch.Tensor, step: int) -> torch.Tensor:
    """View every `step`-th number of each model: `[B, n]`."""
    return tensor.reshape(len(tensor), -1)[:, ::step]
