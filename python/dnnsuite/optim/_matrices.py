# SPDX-License-Identifier: MIT
"""Optimizers that look at a model's parameter as a whole: its matrix, its rows and columns, its norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from ..errors import InvalidArgument
from ._group import Group
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
