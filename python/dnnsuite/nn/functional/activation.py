# SPDX-License-Identifier: MIT
"""Activations. Element-wise ones are torch's, and accept one number per model where torch takes a number. `dim` counts
the dimensions of one model: `softmax(x, dim=1)` of x `[B, N, C]` is over C, as in a model that sees `[N, C]`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.functional import celu_ as celu_
from torch.nn.functional import elu_ as elu_
from torch.nn.functional import hardsigmoid as hardsigmoid
from torch.nn.functional import hardswish as hardswish
from torch.nn.functional import hardtanh_ as hardtanh_
from torch.nn.functional import leaky_relu_ as leaky_relu_
from torch.nn.functional import logsigmoid as logsigmoid
from torch.nn.functional import relu as relu
from torch.nn.functional import relu6 as relu6
from torch.nn.functional import relu_ as relu_
from torch.nn.functional import rrelu as rrelu
from torch.nn.functional import rrelu_ as rrelu_
from torch.nn.functional import selu_ as selu_
from torch.nn.functional import sigmoid as sigmoid
from torch.nn.functional import silu as silu
from torch.nn.functional import softsign as softsign
from torch.nn.functional import tanhshrink as tanhshrink
from torch.nn.functional import threshold_ as threshold_  # type: ignore[attr-defined]

from ... import ops
from ...errors import InvalidArgument
from ...ops.device import numbers, on_cpu
from ...ops.library import tracing
from ...ops.memory_order import by_memory_order, memory_order, way_back
from .._models import each_model, shifted
from ..array_module import per_model
from ..random_draws import fill
from ..waiting import FEWEST_NUMBERS
from ._samples import takes_own_numbers

_SELU = 1.6732632423543772, 1.0507009873554805  # alpha and scale (Klambauer et al., NIPS 2017)


def tanh(input: Tensor) -> Tensor:
    """`torch.tanh`; large float32 tensors on a CPU use an operator of this package, 5 to 8 times as fast as torch's."""
    result = ops.activate(input, "tanh")
    return torch.tanh(input) if result is None else result


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """`torch.nn.functional.gelu`; approximated by tanh, it is as fast as `tanh` here."""
    result = ops.activate(input, "gelu_tanh") if approximate == "tanh" else None
    return F.gelu(input, approximate=approximate) if result is None else result


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.mish`, sped up like `tanh`."""
    result = None if inplace else ops.activate(input, "mish")
    return F.mish(input, inplace) if result is None else result


@takes_own_numbers("beta", "threshold")
def softplus(input: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """`torch.nn.functional.softplus`, sped up like `tanh`."""
    usual = type(beta) in (int, float) and type(threshold) in (int, float) and beta > 0 and threshold <= 80
    result = ops.activate(input, "softplus", float(beta), float(threshold)) if usual else None
    return F.softplus(input, beta, threshold) if result is None else result


@takes_own_numbers("alpha")
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.elu`, sped up like `tanh`."""
    usual = not inplace and type(alpha) in (int, float)
    result = ops.activate(input, "elu", float(alpha), 1.0) if usual else None
    return F.elu(input, alpha, inplace) if result is None else result


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.selu`, sped up like `tanh`."""
    result = None if inplace else ops.activate(input, "elu", *_SELU)
    return F.selu(input, inplace) if result is None else result


celu = takes_own_numbers("alpha")(F.celu)
hardtanh = takes_own_numbers("min_val", "max_val")(F.hardtanh)
threshold = takes_own_numbers("threshold", "value")(F.threshold)


@takes_own_numbers("lambd")
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """`torch.nn.functional.hardshrink`; `lambd` is one number, or one per model."""
    return F.hardshrink(input, lambd)


@takes_own_numbers("lambd")
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """`torch.nn.functional.softshrink`; `lambd` is one number, or one per model."""
    return F.softshrink(input, lambd)


def leaky_relu(input: Tensor, negative_slope: float | Sequence[float] = 0.01, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.leaky_relu`; `negative_slope` is one number, or one per model."""
    if isinstance(negative_slope, (int, float)):
        return F.leaky_relu(input, negative_slope, inplace)
    slopes = per_model(negative_slope, len(input), "negative_slope")
    result = prelu(input, numbers(slopes, input.dtype, input.device).unsqueeze(1))
    return input.copy_(result) if inplace else result


def leaky_by_chance(
    x: Tensor, lower: float | Sequence[float], upper: float | Sequence[float], rng: Tensor | None
) -> Tensor:
    """Compute `rrelu` of x `[B, ...]` with bounds for all models or each, and slopes from the streams `rng` `[B, 2]`;
    None: their means."""
    pairs = list(zip(per_model(lower, len(x), "lower"), per_model(upper, len(x), "upper"), strict=True))
    if rng is None:
        return leaky_relu(x, [(low + high) / 2 for low, high in pairs])
    if len(set(pairs)) == 1:
        slopes = fill("uniform_", x, rng, pairs[0])
    else:
        parts = zip(x.split(1), rng.split(1), pairs, strict=True)
        slopes = torch.cat([fill("uniform_", part, stream, pair) for part, stream, pair in parts])
    return torch.where(x <= 0, x * slopes, x)


leaky_relu.own_numbers = frozenset(("negative_slope",))  # type: ignore[attr-defined]


def _softmax_dim(dim: int | None, x: Tensor, name: str) -> int:
    """Return torch's default of `dim`: 0 for a model's tensor of 0, 1 or 3 dimensions, else 1."""
    if dim is None:
        dim = 0 if x.dim() - 1 in (0, 1, 3) else 1
    return shifted(dim, x, name)


FEW_NUMBERS, FEWEST_IN_ALL = 16, 256
"""Numbers side by side along which torch's softmax is slower than one that copies them first: 6 take 7 times as long,
16 a third; and numbers of a model below which it takes less time than a call of the operator for such rows."""


def _along(function: Callable[[Tensor, int], Tensor], input: Tensor, dim: int) -> Tensor:
    """Call `function(input, dim)` on dimensions in memory order: torch would copy others first."""
    dim %= input.dim()
    if tracing() or (input.stride(dim) == 1 and input.size(dim) < FEW_NUMBERS):
        return function(input, dim)
    return by_memory_order(lambda tensors, place: function(tensors[0], place), [input], dim)


def _of_few(input: Tensor, dim: int, dtype: torch.dtype | None, log: bool) -> Tensor | None:
    """Compute softmax, or its logarithm, along rows of a few numbers, which torch's begins one by one: it takes 4 to 16
    times as long. None for others."""
    if tracing() or not 1 < input.size(dim) < FEW_NUMBERS or input.numel() < FEWEST_IN_ALL * len(input):
        return None
    if not on_cpu(input) or input.dtype not in (torch.float32, torch.float64) or dtype not in (None, input.dtype):
        return None
    order = memory_order(input)
    rows = input.permute(order)
    if order[-1] != dim % input.dim() or not rows.is_contiguous():
        return None
    return ops.short_softmax(rows, log).permute(way_back(order))


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> Tensor:
    """`torch.nn.functional.softmax`; `dim` does not count the dimension of the models."""
    dim = _softmax_dim(dim, input, "softmax")
    short = _of_few(input, dim, dtype, False)
    return short if short is not None else _along(lambda x, d: torch.softmax(x, d, dtype=dtype), input, dim)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> Tensor:
    """`torch.nn.functional.softmin`; `dim` does not count the dimension of the models."""
    dim = _softmax_dim(dim, input, "softmin")
    return _along(lambda x, d: torch.softmax(-x, d, dtype=dtype), input, dim)


def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None
) -> Tensor:
    """`torch.nn.functional.log_softmax`; `dim` does not count the dimension of the models."""
    dim = _softmax_dim(dim, input, "log_softmax")
    short = _of_few(input, dim, dtype, True)
    return short if short is not None else _along(lambda x, d: torch.log_softmax(x, d, dtype=dtype), input, dim)


@takes_own_numbers("tau")
def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1, *, rng: Tensor | None = None
) -> Tensor:
    """`torch.nn.functional.gumbel_softmax`; `dim` does not count the dimension of the models.

    The noise comes from torch's generator, or from `rng`: the (key, step) of each model's stream, int64 `[B, 2]`.
    """
    dim = shifted(dim, logits, "gumbel_softmax")
    if rng is None:
        return F.gumbel_softmax(logits, tau, hard, dim=dim)
    noise = fill("exponential_", logits, rng)
    soft = ((logits - noise.log()) / tau).softmax(dim)
    if not hard:
        return soft
    chosen = torch.zeros_like(soft).scatter_(dim, soft.max(dim, keepdim=True)[1], 1.0)
    return chosen - soft.detach() + soft


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """`torch.nn.functional.glu`; `dim` does not count the dimension of the models."""
    dim = shifted(dim, input, "glu")
    large = input.numel() >= FEWEST_NUMBERS and on_cpu(input)
    own = ops.glu(input, dim) if large else None
    return _along(F.glu, input, dim) if own is None else own


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """`torch.nn.functional.prelu` of input `[B, N, C, *]` with weight `[B, 1]` or `[B, C]`."""
    channels = input.size(2) if input.dim() > 2 else 1
    if weight.dim() != 2 or len(weight) != len(input) or weight.size(1) not in (1, channels):
        raise InvalidArgument(
            f"prelu of {list(input.shape)} takes a weight [{len(input)}, 1] or [{len(input)}, {channels}]; "
            f"got {list(weight.shape)}"
        )
    known = input.dtype in (torch.float32, torch.float64) and input.numel() > 0 and on_cpu(input)
    if known and (own := ops.prelu(input, weight.to(input.dtype))) is not None:
        return own
    if weight.size(1) != 1 or len(input) == 0:
        return each_model(torch.prelu, input, weight.to(input.dtype))
    order = memory_order(input)  # one weight for a model: the models are the channels of one long sample
    laid_out = input.permute(order)
    y = torch.prelu(laid_out.reshape(1, len(input), -1), weight.flatten().to(input.dtype))
    return y.view(laid_out.shape).permute(way_back(order))
