# SPDX-License-Identifier: MIT
"""Normalisation with each model's own affine parameters, and in batch and instance norms own statistics."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from .. import ops
from ..errors import InvalidArgument
from . import functional
from ._parametric import Parametric
from ._stateless import Stateless
from .array_module import check_models
from .functional.normalization import check_batch
from .sharing import held_once, is_frozen, make_own

#: Newer torch can leave out the bias of a group or batch norm alone.
_HAS_BIAS = "bias" in inspect.signature(torch.nn.GroupNorm.__init__).parameters


def bias_of(module: Any) -> dict[str, bool]:
    """Argument `bias` of a group, batch or instance norm, where torch has it."""
    return {"bias": module.bias is not None or not module.affine} if _HAS_BIAS else {}


class Affine(Parametric):
    """Base of normalisations: weights that start at one and biases that start at zero, `[B, *shape]`."""

    weight: torch.Tensor | None
    bias: torch.Tensor | None

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Set weights to one and biases to zero, as torch does."""
        for name, value in (("weight", 1.0), ("bias", 0.0)):
            if (parameter := self._parameters.get(name)) is not None:
                parameter.fill_(value)


class LayerNorm(Affine):
    """`torch.nn.LayerNorm` for B models: input and output are `[B, *, *normalized_shape]`.

    Weight and bias are `[B, *normalized_shape]`.

    >>> import torch
    >>> from dnnsuite import nn
    >>> nn.LayerNorm(16, B=3)(torch.randn(3, 8, 16)).shape
    torch.Size([3, 8, 16])
    """

    arguments = ("normalized_shape", "eps", "elementwise_affine", "bias")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_models(x, self.B, "LayerNorm")
        return functional.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(Affine):
    """`torch.nn.RMSNorm` for B models: input and output are `[B, *, *normalized_shape]`, the weight is `[B,
    *normalized_shape]`.

    `eps=None` means the machine epsilon of the input's dtype.
    """

    arguments = ("normalized_shape", "eps", "elementwise_affine")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_models(x, self.B, "RMSNorm")
        return functional.rms_norm(x, self.normalized_shape, self.weight, self.eps)


class GroupNorm(Affine):
    """`torch.nn.GroupNorm` for B models: input and output are `[B, N, C, *]`, weight and bias are `[B, C]`."""

    arguments = ("num_groups", "num_channels", "eps", "affine")

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        return super().arguments_of(module) | bias_of(module)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_models(x, self.B, "GroupNorm")
        if x.dim() < 3 or x.size(2) != self.num_channels:
            raise InvalidArgument(
                f"GroupNorm({self.num_groups}, {self.num_channels}, B={self.B}) takes [B, N, {self.num_channels}, *]; "
                f"got {list(x.shape)}"
            )
        return functional.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class LocalResponseNorm(Stateless, function="local_response_norm"):
    """`torch.nn.LocalResponseNorm` for B models: input and output are `[B, N, C, *]`."""


_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class _NormBase(Affine):
    """Base of batch and instance normalisation: parameters, running statistics, arguments."""

    per_model_arguments = ("momentum",)
    per_model_lists = ("momenta",)
    ranks: ClassVar[tuple[int, ...]]  # of the input, model and batch included

    arguments = ("num_features", "eps", "affine", "track_running_stats")

    running_mean: torch.Tensor | None
    running_var: torch.Tensor | None
    num_batches_tracked: torch.Tensor | None

    def _take(self, plain: Any, device: Any) -> None:
        for name, one in plain._buffers.items():
            made = None if one is None else torch.zeros(self.B, *one.shape, dtype=one.dtype, device=device)
            self.register_buffer(name, made)
        super()._take(plain, device)
        self.reset_running_stats()

    @property
    def momentum(self) -> Any:
        """Weight of the newest batch in the running statistics; None for an average over all batches; a list if the
        models differ. Set it to a number or None, or to one per model in a list or a tensor."""
        return self.momenta[0] if len(set(self.momenta)) == 1 else self.momenta

    @momentum.setter
    def momentum(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            value = value.tolist()
        momenta = list(value) if isinstance(value, Sequence) else [value] * self.B
        if len(momenta) != self.B:
            raise InvalidArgument(f"momentum has {len(momenta)} values for {self.B} models: give one, or one per model")
        for one in momenta:
            if one is not None and (isinstance(one, bool) or not isinstance(one, (int, float))):
                raise InvalidArgument(
                    f"momentum of {type(self).__name__} is a number or None, or one per model; got {value!r}"
                )
        self.momenta: list[float | None] = momenta

    @torch.no_grad()
    def reset_running_stats(self) -> None:
        """Reset to mean zero, variance one, and no batch seen."""
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Reset weights to one, biases to zero, and the running statistics."""
        self.reset_running_stats()
        super().reset_parameters()

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        momentum = module.momenta if isinstance(module, _NormBase) else module.momentum
        return super().arguments_of(module) | {"momentum": momentum} | bias_of(module)

    @property
    def moves(self) -> bool:
        """True if a forward now changes running statistics."""
        return self.training and self.track_running_stats and self._buffers["running_mean"] is not None

    def own_written(self) -> bool:
        """Give each model its own running statistics, if it is about to change them; return True if it had none."""
        return self.moves and self._holds_once() and make_own(self, _STATISTICS)

    def _holds_once(self) -> bool:
        buffers = self._buffers
        return any(value is not None and held_once(value) for value in map(buffers.get, _STATISTICS))

    def is_alike(self) -> bool:
        return not self.moves and super().is_alike()

    def _check(self, x: torch.Tensor) -> None:
        name = type(self).__name__
        check_models(x, self.B, name)
        if x.dim() not in self.ranks or x.size(2) != self.num_features:
            raise InvalidArgument(
                f"{name}({self.num_features}, B={self.B}) takes [B, N, {self.num_features}, ...] of "
                f"{' or '.join(map(str, self.ranks))} dimensions; got {list(x.shape)}"
            )

    def _factor(self) -> float | torch.Tensor:
        """Return the share of the batch that enters each model's running statistics, which have counted it."""
        first = self.momenta[0] if self.momenta else 0.1
        if first is not None and all(value == first for value in self.momenta):
            return first
        assert self.num_batches_tracked is not None
        average = 1.0 / self.num_batches_tracked.double()
        if first is None and all(value is None for value in self.momenta):
            return average
        fixed = torch.tensor([-1.0 if v is None else v for v in self.momenta], dtype=torch.float64)
        fixed = fixed.to(average.device)
        return torch.where(fixed < 0, average, fixed)


class _BatchNorm(_NormBase):
    """`[B, N, C, *]` to the same; weight, bias and running statistics are `[B, C]`, `num_batches_tracked` is `[B]`.

    Subclasses are torch's classes, too: `swa_utils.update_bn` and code that freezes batch norms look for these.
    """

    activations = frozenset({"relu", "relu6", "leaky_relu", "hardswish", "silu"})
    adds_residual = True

    def is_alike(self) -> bool:
        # In training the result is the same for all: each model's statistics take it in, and do not go into it.
        return super().is_alike() or (self.moves and all(map(is_frozen, self._parameters.values())))

    def of_one(self) -> Any:
        one = super().of_one()
        if self.moves:
            self.own_written()
            one.__dict__.update(_buffers=self._buffers, momenta=self.momenta)
        return one

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        arguments, tracked = self._arguments(x)
        return functional.batch_norm(*arguments, tracked=tracked)

    def activated(
        self, x: torch.Tensor, activation: str = "none", slope: float = 0.01, residual: torch.Tensor | None = None
    ) -> torch.Tensor:
        """`activation(self(x) + residual)` in one pass forward and one backward."""
        arguments, tracked = self._arguments(x)
        arguments = (*arguments, activation, slope, residual)
        return functional.batch_norm_act(*arguments, tracked=tracked)

    def before_maximum(self, x: torch.Tensor) -> frozenset[str]:
        return ops.MAX_ACTIVATIONS if functional.has_batch_norm_max(x) else frozenset()

    def maximum(
        self, x: torch.Tensor, activation: str = "none", slope: float = 0.01
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the maximum of `activation(self(x))` over the last dimension, kept as 1, and its index."""
        arguments, tracked = self._arguments(x)
        if tracked is not None:
            tracked.add_(1)
        arguments = (*arguments, activation, slope)
        return functional.batch_norm_max(*arguments)

    @staticmethod
    def activate(x: torch.Tensor, activation: str, slope: float) -> torch.Tensor:
        """Apply only the activation."""
        return ops.NORM_ACTIVATIONS[activation](x, slope)

    def repeated(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return type(self).forward(self, x)
        return functional.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)

    def _arguments(self, x: torch.Tensor) -> tuple[tuple[Any, ...], torch.Tensor | None]:
        """Return the arguments of `functional.batch_norm` for this input, and the counter of batches if it still has to
        count this one."""
        self._check(x)
        self.own_written()
        buffers = self._buffers
        mean, var = buffers["running_mean"], buffers["running_var"]
        training = self.training or mean is None
        check_batch(x, training, type(self).__name__)
        momentum: float | torch.Tensor = 0.0
        tracked = None
        if mean is None or (self.training and not self.track_running_stats):
            mean = var = None
        elif self.training and (tracked := buffers["num_batches_tracked"]) is not None:
            averages = None in self.momenta
            if averages:  # over all batches, with this one
                tracked.add_(1)
            momentum = self._factor()
            tracked = None if averages else tracked
        return (x, mean, var, self.weight, self.bias, training, momentum, self.eps), tracked


class BatchNorm1d(_BatchNorm, torch.nn.BatchNorm1d):  # type: ignore[misc]
    """`torch.nn.BatchNorm1d` for B models: `[B, N, C]` or `[B, N, C, L]`. `momentum` is one number, or one per
    model."""

    torch_class = torch.nn.BatchNorm1d
    ranks = (3, 4)


class BatchNorm2d(_BatchNorm, torch.nn.BatchNorm2d):  # type: ignore[misc]
    """`torch.nn.BatchNorm2d` for B models: `[B, N, C, H, W]`. `momentum` is one number, or one per model."""

    torch_class = torch.nn.BatchNorm2d
    ranks = (5,)


class BatchNorm3d(_BatchNorm, torch.nn.BatchNorm3d):  # type: ignore[misc]
    """`torch.nn.BatchNorm3d` for B models: `[B, N, C, D, H, W]`. `momentum` is one number, or one per model."""

    torch_class = torch.nn.BatchNorm3d
    ranks = (6,)


class _InstanceNorm(_NormBase):
    """`[B, N, C, *]` to the same, or `[B, C, *]` without a batch; weight and bias are `[B, C]`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dim() == self.ranks[0] - 1:
            return type(self).forward(self, x.unsqueeze(1)).squeeze(1)
        self._check(x)
        self.own_written()
        own = self.training or not self.track_running_stats
        known = all(value is not None for value in self.momenta)  # torch takes none at all as 0
        momentum = self._factor() if known and self.training and self.track_running_stats else 0.0
        return functional.instance_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, own, momentum, self.eps
        )


class InstanceNorm1d(_InstanceNorm, ranks=(4,)): ...


class InstanceNorm2d(_InstanceNorm, ranks=(5,)): ...


class InstanceNorm3d(_InstanceNorm, ranks=(6,)): ...
