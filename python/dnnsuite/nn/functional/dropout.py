# SPDX-License-Identifier: MIT
"""Dropout functions with a rate per model and counter-based masks, so that the mask of a model does not depend on the
other models.

Besides torch's arguments each takes `rng`, the (key, step) of each model's stream, int64 `[B, 2]`; equal pairs give
equal masks. Without it, the keys come from torch's generator. `p` is one rate, or one per model. `inplace` writes the
result into the input but saves no memory, because the mask is recomputed in the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ... import ops
from ...errors import InvalidArgument
from ...ops.device import numbers
from ...ops.shared import beside
from .._models import computable
from ..array_module import per_model
from ..random_streams import new_stream
from ._samples import named

Tensor = torch.Tensor
Rate = float | Sequence[float] | Tensor

_ALPHA = 1.7580993408473766  # SELU's value far left, negated (Klambauer et al., NIPS 2017)


def drawn(p: Rate, rng: Tensor | None, x: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Return (p, rng) for operators on x `[B, ...]`; (None, None) if nothing is dropped."""
    if not isinstance(p, Tensor) or p.device.type == "cpu":
        rates = checked_rates(per_model(p, len(x), "p"))
        if not any(rates):
            return None, None
        if not isinstance(p, Tensor) or p.dtype != torch.float32 or p.device != x.device:
            p = numbers(rates, torch.float32, x.device)
    elif len(p) != len(x):  # to look at the values would be to wait for the device
        raise InvalidArgument(f"p has {len(p)} values for {len(x)} models: give one value, or one per model")
    return p.to(x.device, torch.float32), new_stream(len(x), x.device) if rng is None else rng


def checked_rates(rates: list[float]) -> list[float]:
    """Refuse rates that are no probabilities."""
    for rate in rates:
        if not 0.0 <= rate <= 1.0:
            raise InvalidArgument(f"dropout probability must be between 0 and 1, got {rate!r}")
    return rates


def drop(x: Tensor, p: Tensor, rng: Tensor) -> Tensor:
    """Drop elements of x; keeps the dtype."""
    result = ops.dropout(computable(x), p, rng)
    return result if result.dtype == x.dtype else result.to(x.dtype)


def drop_channels(x: Tensor, p: Tensor, rng: Tensor) -> Tensor:
    """Drop channels of x `[B, N, C, *]`."""
    return x * _channel_factors(x, p, rng).to(x.dtype)


def drop_alpha(x: Tensor, p: Tensor, rng: Tensor) -> Tensor:
    """Set dropped elements of x to SELU's lowest value; scale and shift all so that mean and variance stay."""
    with torch.no_grad():
        factors = ops.dropout(torch.ones_like(computable(x), memory_format=torch.contiguous_format), p, rng)
    return _alpha(x, factors, p)


def drop_alpha_channels(x: Tensor, p: Tensor, rng: Tensor) -> Tensor:
    """Apply `drop_alpha` to whole channels of x `[B, N, C, *]`."""
    return _alpha(x, _channel_factors(x, p, rng), p)


def _channel_factors(x: Tensor, p: Tensor, rng: Tensor) -> Tensor:
    if x.dim() < 3:
        raise InvalidArgument(f"dropout of channels takes [B, N, C, ...], got {list(x.shape)}")
    with torch.no_grad():
        ones = torch.ones(x.shape[:3], dtype=computable(x).dtype, device=x.device)
        kept = ops.dropout(ones, p, rng) > 0
        # 1 / (1 - p) as torch has it; the operator's own scale is that of p rounded to 16 bits.
        factors = torch.where(kept, (1 / (1 - p.double())).to(ones.dtype).view(-1, 1, 1), 0.0)
        return factors.view(*x.shape[:3], *[1] * (x.dim() - 3))


def _alpha(x: Tensor, factors: Tensor, p: Tensor) -> Tensor:
    rate = beside((p.double() * 65536).round() / 65536, x)  # what the mask drops at
    scale = ((1 - rate) * (1 + rate * _ALPHA**2)).rsqrt()
    scale = torch.where(rate < 1, scale, 0.0)
    shift = scale * _ALPHA * rate
    low = (shift - scale * _ALPHA).to(x.dtype)
    return torch.where(factors > 0, x * scale.to(x.dtype) + shift.to(x.dtype), low)


def _dropout(
    name: str, draw: Callable[[Tensor, Tensor, Tensor], Tensor], what: str, train: bool = True, unbatched: int = 0
) -> Callable[..., Tensor]:
    """Make torch's function `name`, which draws by `draw`; an input of `unbatched` dimensions has no batch."""

    def function(
        input: Tensor, p: Rate = 0.5, training: bool = train, inplace: bool = False, *, rng: Tensor | None = None
    ) -> Tensor:
        single = input.dim() == unbatched
        x = input.unsqueeze(1) if single else input
        rates, stream = drawn(p, rng, x)
        if not training or rates is None or stream is None:
            return input
        y = draw(x, rates, stream)
        y = y.squeeze(1) if single else y
        return input.copy_(y) if inplace else y

    function.own_numbers = frozenset(("p",))  # type: ignore[attr-defined]
    return named(function, name, what)


dropout = _dropout("dropout", drop, "on `[B, ...]`: elements are set to zero, and the others scaled by 1 / (1 - p).")
alpha_dropout = _dropout(
    "alpha_dropout", drop_alpha, "on `[B, ...]`; it keeps mean and variance of a standard normal input.", train=False
)
feature_alpha_dropout = _dropout(
    "feature_alpha_dropout", drop_alpha_channels, "on whole channels of `[B, N, C, *]`.", train=False
)
dropout1d = _dropout("dropout1d", drop_channels, "on `[B, N, C, L]`, or without N.", unbatched=3)
dropout2d = _dropout("dropout2d", drop_channels, "on `[B, N, C, H, W]`; `[B, N, C, L]` is as in `dropout1d`.")
dropout3d = _dropout("dropout3d", drop_channels, "on `[B, N, C, D, H, W]`, or without N.", unbatched=5)
