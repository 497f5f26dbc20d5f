# SPDX-License-Identifier: MIT
"""Optimizers written with torch's operators: those that look at a model's parameter as a whole (its matrix, its rows
and columns, its norm), and those that need no schedule, because averaging takes its place, or the distance travelled
sets the rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from .. import _under_way as under_way
from ..errors import InvalidArgument
from ..ops.shared import Maybe, beside
from ._group import Group
from ._plan import Groups, Hyper, Hypers
from ._written import Entry, WrittenOptimizer, norm


class Muon(WrittenOptimizer):
    """`torch.optim.Muon` for B models (Jordan et al., 2024): momentum made orthogonal by Newton-Schulz, in bfloat16.

    It takes the matrices of the models, `[B, m, n]` in an array; give biases, norms and embeddings to another
    optimizer, and both to a `ChainedOptimizer`. One chain of batched products serves all models and all parameters of
    one shape.

    >>> from dnnsuite import nn, optim
    >>> array = nn.Linear(4, 2, bias=False, B=3)
    >>> optimizer = optim.Muon(array.parameters(), lr=[0.1, 0.02, 0.01])
    """

    torch_class = getattr(torch.optim, "Muon", None)
    per_model = ("lr", "weight_decay", "momentum", "eps")
    flags = ("nesterov", "ns_coefficients", "ns_steps", "adjust_lr_fn")
    states = ("momentum_buffer",)
    by_sizes = True

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        for parameter in group["params"]:
            if parameter.dim() != 3:
                raise InvalidArgument(
                    f"Muon takes the models' matrices, [B, m, n] in an array; a parameter is {list(parameter.shape)}: "
                    "give it to another optimizer, and train with optim.ChainedOptimizer([muon, other]). In a sweep, "
                    "optimizer= is a function that returns both of a model, torch's, as a list"
                )
        if group["adjust_lr_fn"] not in (None, "original", "match_rms_adamw"):
            raise InvalidArgument(f"adjust_lr_fn is {group['adjust_lr_fn']!r}; it must be original or match_rms_adamw")

    def formulas(self, entries: Sequence[Entry], group: Group) -> None:
        alike: dict[Any, list[tuple[Entry, torch.Tensor]]] = {}
        for entry in entries:
            (momentum,) = entry.hyper("momentum")
            buffer = torch.lerp(entry["momentum_buffer"], entry.grad, 1 - momentum)
            entry.write(momentum_buffer=buffer)
            moved = torch.lerp(entry.grad, buffer, momentum) if group["nesterov"] else buffer
            alike.setdefault(entry.value.shape, []).append((entry, moved))
        for shape, together in alike.items():
            eps = torch.cat([entry.hyper("eps")[0] for entry, _ in together])
            found = _orthogonal(torch.cat([moved for _, moved in together]), eps, group)
            rows, columns = shape[1:]
            ratio = max(1.0, rows / columns) ** 0.5
            if group["adjust_lr_fn"] == "match_rms_adamw":
                ratio = 0.2 * max(rows, columns) ** 0.5
            for (entry, _), own in zip(together, found.split(shape[0]), strict=True):
                lr, decay = entry.hyper("lr", "weight_decay")
                entry.write(entry.value * (1 - lr * decay) - ratio * lr * own.to(entry.dtype))
                entry.count()


def _orthogonal(matrices: torch.Tensor, eps: torch.Tensor, group: Group) -> torch.Tensor:
    """Make matrices `[N, m, n]` nearly orthogonal, all by one chain of batched products."""
    a, b, c = group["ns_coefficients"]
    tall = matrices.size(1) > matrices.size(2)
    x = matrices.bfloat16()
    x = x.mT if tall else x
    x = x / torch.maximum(norm(x), eps.bfloat16())
    for _ in range(group["ns_steps"]):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Adafactor(WrittenOptimizer):
    """`torch.optim.Adafactor` for B models (Shazeer and Stern, 2018): a second moment of rows and columns.

    `eps` is a pair; None for the first takes the epsilon of the dtype.
    """

    torch_class = getattr(torch.optim, "Adafactor", None)
    by_sizes = True
    per_model = ("lr", "beta2_decay", "eps1", "eps2", "d", "weight_decay")
    pairs: ClassVar[Any] = {"eps": ("eps1", "eps2")}

    def _check_group(self, group: Group) -> None:
        if group["eps1"] is None:
            group["eps1"] = torch.finfo(group["params"][0].dtype).eps if group["params"] else 0.0
        super()._check_group(group)

    def names_of(self, rule: str, parameter: torch.Tensor) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return ("row_var", "col_var") if parameter.dim() > 2 else ("variance",), ("step",)

    def zeros(self, name: str, parameter: torch.Tensor) -> torch.Tensor:
        if name == "variance":
            return super().zeros(name, parameter)
        shape = list(parameter.shape)
        shape[-1 if name == "row_var" else -2] = 1
        return parameter.new_zeros(shape)

    def formula(self, entry: Entry, group: Group) -> dict[str, torch.Tensor]:
        lr, decay, eps1, eps2, d, power = entry.hyper("lr", "weight_decay", "eps1", "eps2", "d", "beta2_decay")
        step, w, grad = entry.spread(entry.step), entry.value, entry.grad
        root = max(1, w[0].numel()) ** 0.5
        rate = torch.maximum(eps2, norm(w) / root) * torch.minimum(lr, step.rsqrt())
        weight = step**power
        if grad.dim() > 2:
            rows, columns = (
                torch.linalg.vector_norm(grad, dim=k, keepdim=True).square() / grad.size(k) for k in (-1, -2)
            )
            states = {
                "row_var": torch.lerp(entry["row_var"], rows, weight),
                "col_var": torch.lerp(entry["col_var"], columns, weight),
            }
            mean = torch.maximum(states["row_var"].mean(-2, keepdim=True), eps1)
            variance = states["row_var"] @ states["col_var"] / mean
        else:
            variance = torch.lerp(entry["variance"], grad.square(), weight)
            states = {"variance": variance}
        update = torch.maximum(variance, eps1 * eps1).rsqrt() * grad
        clipped = rate / (norm(update) / (root * d)).clamp(min=1.0)
        return {"value": w * (1 - lr * decay) - clipped * update, **states}


class LAMB(WrittenOptimizer):
    """LAMB for B models (You et al., 2020, arXiv:1904.00962); torch has none.

    Adam's step u + weight_decay · w, times ‖w‖ / ‖u + weight_decay · w‖ for each parameter of each model that decays,
    or for all with `always_adapt`. `trust_clip` limits the ratio to 1.
    """

    arguments: ClassVar[Any] = {
        **{"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 1e-2, "bias_correction": True},
        **{"always_adapt": False, "trust_clip": False, "maximize": False},
    }
    per_model = ("lr", "beta1", "beta2", "eps", "weight_decay")
    pairs: ClassVar[Any] = {"betas": ("beta1", "beta2")}
    flags = ("maximize", "bias_correction", "always_adapt", "trust_clip")
    states = ("exp_avg", "exp_avg_sq")

    def formula(self, entry: Entry, group: Group) -> dict[str, torch.Tensor]:
        lr, beta1, beta2, eps, decay = entry.hyper(*self.per_model)
        w, grad, step = entry.value, entry.grad, entry.spread(entry.step)
        mean = torch.lerp(grad, entry["exp_avg"], beta1)
        square = torch.lerp(grad.square(), entry["exp_avg_sq"], beta2)
        first, second = (1 - beta1**step, 1 - beta2**step) if group["bias_correction"] else (1.0, 1.0)
        update = mean / first / ((square / second).sqrt() + eps) + decay * w
        weights, updates = norm(w), norm(update)
        ratio = torch.where((weights > 0) & (updates > 0), weights / updates, 1.0)
        ratio = ratio.clamp(max=1.0) if group["trust_clip"] else ratio
        ratio = ratio if group["always_adapt"] else torch.where(decay != 0, ratio, 1.0)
        return {"value": w - lr * ratio * update, "exp_avg": mean, "exp_avg_sq": square}


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

    def update_groups(self, groups: Groups, state: Any, hypers: Hypers, factor: Maybe, active: Tensor) -> None:
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
