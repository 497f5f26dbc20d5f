# SPDX-License-Identifier: MIT
"""Linear layers of B models, with an activation.

On a CPU this package computes products of up to `LARGE` multiplications per model: only the forward's weight is packed,
and each element is one sum in order, so a model's bits depend on its own shape alone (1.2 to 2 times as fast as torch's
batched product at 32 x 128 x 128, `benchmarks/ops/bench_linear.py`). Larger ones are computed by torch's library, model
by model into the result. On CUDA, and for 16 bits on a CPU, torch's batched product is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import InvalidArgument
from ._pointwise import bias_act_dropout
from .device import on_cpu, on_gpu
from .library import (
    differentiable,
    eager,
    fake,
    gradients_through,
    instruction_set,
    library,
    remember,
    saves,
    tracing,
    transforming,
)
from .shared import folded, is_frozen, is_kept, spread

_VECTORS = instruction_set() != "generic"
LARGE = 3 * 2**26 if instruction_set() == "avx512" else 2**24
"""Multiplications per model from which a library call per model pays. With AVX-512 this package's product takes 0.9 of
the library's time far beyond cache sizes."""
FEW_ROWS, MANY_WEIGHTS = 64, 10**6
"""Rows up to which, and numbers of a weight from which, reading the weight is most of the work: the library's product
then takes 0.75 to 0.98 of this package's time, and 1.15 times as long with 0.8 million."""
DOT_ROWS, DOT_INPUTS = 8, 32
"""Rows up to which, and inputs from which, the product is computed by dot products, which sum in another order."""
WIDE = 1024
"""Columns from which sums over rows are computed as a product with ones: torch's sum takes 1.3 to 2 times as long."""

_linear = library.linear.default
_linear_backward = library.linear_backward.default
_OWN = (torch.float32, torch.float64)
_SIXTEEN_BIT = (torch.bfloat16, torch.float16)

ACTIVATIONS = ("none", "relu", "gelu")
fake("linear", lambda x, weight: x.new_empty((*x.shape[:2], weight.shape[1])))
fake(
    "linear_backward",
    lambda x, weight, needs_x, needs_weight, needs_bias: (
        x.new_empty(x.shape if needs_x else 0),
        x.new_empty(weight.shape if needs_weight else 0),
        x.new_empty(weight.shape[:2] if needs_bias else 0),
    ),
)


def linear_composition(x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool = False) -> Tensor:
    """Compose the operator of torch's functions: x [B, R, I], weight [B, O, I], bias [B, O]."""
    if bias is None:
        y = torch.bmm(x, weight.transpose(1, 2))
    else:
        y = torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))
    return torch.relu(y) if relu else y


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weight, bias, relu = inputs
    ctx.save_for_backward(x, weight, bias, output if relu else None)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, weight, _, relu_output = ctx.saved_tensors
    needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
    shape = x.shape
    if len(shape) != 3:
        grad, x = grad.flatten(1, -2), x.flatten(1, -2)
        relu_output = None if relu_output is None else relu_output.flatten(1, -2)
    dx, dweight, dbias = _linear_backward(grad, x, weight, relu_output, needs_x, needs_weight, needs_bias)
    dx = dx.view(shape) if needs_x else None
    return (dx, dweight if needs_weight else None, dbias if needs_bias else None, None)


_eager = differentiable(_linear, _setup, _backward, linear_composition)


def _by_rows(product: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Make the product for x [B, ..., R, I] of that for [B, R, I]."""

    def call(x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
        y = product(x.flatten(1, -2), weight, bias, relu)
        return y.view(*x.shape[:-1], y.shape[2])

    return call


_eager_by_rows = eager(_by_rows(_linear), _setup, _backward, _by_rows(linear_composition))
"""The product for x [B, ..., R, I]: autograd sees no change of shape before and after it."""


def products(
    forward: Callable[..., Tensor],
    gradients: Callable[..., tuple[Any, ...]],
    composition: Callable[..., Tensor] = linear_composition,
) -> Callable[..., Tensor]:
    """Make a differentiable product of x [B, R, I], weight [B, O, I] and bias [B, O] or None.

    Args:
        forward: `(x, weight, bias)` → the product [B, R, O].
        gradients: `(grad, x, weight, needs_x, needs_weight, needs_bias)` → the gradients, None where not needed.
        composition: the same of torch's functions, for gradients of gradients.
    """

    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return gradients(grad, *ctx.saved_tensors, *ctx.needs_input_grad)

    return eager(forward, saves(0, 1), backward, composition)


def products_one_by_one(a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
    """Compute a @ b + bias of each model: a `[B, M, K]`, b `[B, K, N]`, bias `[B, N]`."""
    y = a.new_empty(*a.shape[:2], b.shape[2])
    for model in range(len(a)):
        if bias is None:
            product_into(a[model], b[model], y[model])
        else:
            torch.addmm(bias[model], a[model], b[model], out=y[model])
    return y


def _one_by_one_forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return products_one_by_one(x, weight.transpose(1, 2), bias)


def _one_by_one_gradients(
    grad: Tensor, x: Tensor, weight: Tensor, needs_x: bool, needs_weight: bool, needs_bias: bool
) -> tuple[Any, ...]:
    dx = x.new_empty(x.shape) if needs_x else None
    dweight = weight.new_empty(weight.shape) if needs_weight else None
    for model in reversed(range(len(grad))):  # the last is what a forward pass has left in the caches
        g = grad[model]
        if dweight is not None:
            product_into(g.t(), x[model], dweight[model])
        if dx is not None:
            product_into(g, weight[model], dx[model])
    return dx, dweight, column_sums(grad) if needs_bias else None


def _batched_gradients(
    grad: Tensor, x: Tensor, weight: Tensor, needs_x: bool, needs_weight: bool, needs_bias: bool
) -> tuple[Any, ...]:
    """Compute gradients as batched products; torch's gradient of a transposed weight would be transposed, and
    copied."""
    return (
        torch.bmm(grad, weight) if needs_x else None,
        torch.bmm(grad.transpose(1, 2), x) if needs_weight else None,
        grad.sum(1) if needs_bias else None,
    )


_one_by_one = products(_one_by_one_forward, _one_by_one_gradients)  # large products of a CPU
_batched = products(linear_composition, _batched_gradients)  # products of a GPU


def product_into(a: Tensor, b: Tensor, out: Tensor) -> None:
    """Compute a @ b; a single column as a product with a vector, which takes half the time or less."""
    if b.shape[1] == 1:
        torch.mv(a, b[:, 0], out=out[:, 0])
    else:
        torch.mm(a, b, out=out)


def column_sums(grad: Tensor) -> Tensor:
    """Sum [B, R, O] over R to [B, O]; a model's bits do not depend on the others."""
    models, rows, columns = grad.shape
    if columns < WIDE:
        return grad.sum(1)
    ones, sums = grad.new_ones(rows), grad.new_empty(models, columns)
    for model in range(models):
        torch.mv(grad[model].t(), ones, out=sums[model])
    return sums


def _rounded_in_order(x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Our product of what is rounded to `dtype`, a sum in order: a library's own of 16 bits sums by the sizes."""
    rows, matrix = (_rounded(_rounded(part, dtype), torch.float32) for part in (x, weight))
    offsets = None if bias is None else bias.to(dtype).float()
    return _by_tiles(rows, matrix, offsets, False).to(dtype)


class _Rounded(torch.autograd.Function):
    """Product of tensors rounded to `dtype`. torch's autocast does this with transposed weights, where rounding them
    and converting the gradient back takes longer than the product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
        rounded, matrix = _rounded(x, dtype), weight.to(dtype)
        ctx.save_for_backward(rounded, matrix)
        ctx.dtypes = x.dtype, weight.dtype, None if bias is None else bias.dtype
        remember(ctx, (x, weight, bias, dtype))
        y = torch.bmm(rounded, matrix.transpose(1, 2))
        return y if bias is None else y.add_(bias.to(dtype).unsqueeze(1))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            return (*gradients_through(_rounded_composition, ctx, (grad,)),)
        x, weight = ctx.saved_tensors[:2]
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        of_x, of_weight, of_bias = ctx.dtypes
        return (
            torch.bmm(grad, weight).to(of_x) if needs_x else None,
            torch.bmm(grad.transpose(1, 2), x).to(of_weight) if needs_weight else None,
            grad.sum(1, dtype=of_bias) if needs_bias else None,
            None,
        )


def _rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Cast x to `dtype`; a shared tensor once."""
    return x[:1].to(dtype).expand_as(x) if x.stride(0) == 0 and len(x) > 1 else x.to(dtype)


def _rounded_composition(x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    return linear_composition(x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype))


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str = "none",
    dtype: torch.dtype | None = None,
    in_order: bool = False,
) -> Tensor:
    """Compute activation(x @ weightᵀ + bias) of each model; the result is [B, ..., O].

    Args:
        x: inputs [B, ..., I]. If all models share them they may be an expanded tensor (stride 0 in dimension 0), which
            is not copied.
        weight, bias: [B, O, I] and [B, O].
        activation: 'none', 'relu' or 'gelu' (the exact form, with erf).
        dtype: type of the product and the result; by default that of x, or autocast's under autocast. Gradients have
            the type of their tensor.
        in_order: compute each element, on a CPU, as one sum in order, at any size and in any precision, so that zeros
            at the end of I or O do not change a bit.
    """
    models, outputs, inputs = weight.shape
    _check(x, weight, bias, activation)
    own = own_products(x, weight, bias)
    low = None if own and (dtype is None or dtype == x.dtype) else _rounding(x, weight, dtype)
    if own and low is None and activation != "gelu" and weight.requires_grad:  # the usual case
        relu = activation == "relu"
        if x.dim() == 3:
            return _of_own_rows(x, weight, bias, relu, in_order)
        count = x.shape[1:-1].numel()
        if x.dim() > 3 and _VECTORS and _few(count, weight) and x.is_contiguous() and not in_order and not tracing():
            return _eager_by_rows(x, weight, bias, relu)
    if is_kept(weight) and not is_kept(bias):  # a bias of each model's own, as in BitFit
        y = linear(x, weight, dtype=dtype)
        offsets = bias.to(y.dtype).reshape(models, *(1,) * (y.dim() - 2), outputs)  # type: ignore[union-attr]
        return _activated(y + offsets, activation)
    if is_frozen(weight) and is_frozen(x):
        one = linear(x[:1], weight[:1], None if bias is None else bias[:1], activation, dtype)
        return spread(one, models)
    if activation == "gelu" and low is None:
        product = linear(x, weight)
        return bias_act_dropout(product, None if bias is None else bias.to(product.dtype), "gelu")
    rows = x if x.dim() == 3 else x.reshape(models, x.shape[1:-1].numel(), inputs)
    if low is None:
        y = _of_rows(rows, weight, bias, activation == "relu", in_order)
    else:
        wide = is_frozen(weight)
        if wide:
            rows, weight, bias = folded(rows), weight[:1], None if bias is None else bias[:1]
        watched = not on_cpu(x) or tracing() or transforming()
        product_of = _rounded_composition if watched else _rounded_in_order if in_order else _Rounded.apply
        y = _activated(product_of(rows, weight, bias, low), activation)
        y = y.view(models, -1, outputs) if wide else y
    return y if x.dim() == 3 else y.view(*x.shape[:-1], outputs)


def _check(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> None:
    models, outputs, inputs = weight.shape
    if x.dim() < 2 or x.shape[0] != models or x.shape[-1] != inputs:
        raise InvalidArgument(
            f"linear: x must be [B, ..., I] with B = {models} and I = {inputs} as in weight "
            f"{list(weight.shape)}, not {list(x.shape)}"
        )
    if x.device != weight.device:  # torch would return an uninitialised product of a meta tensor with another
        raise InvalidArgument(f"linear: x is on {x.device} and weight on {weight.device}")
    if bias is not None and bias.shape != (models, outputs):
        raise InvalidArgument(f"linear: bias must be {[models, outputs]}, not {list(bias.shape)}")
    if activation not in ACTIVATIONS:
        raise InvalidArgument(f"linear: activation must be one of {list(ACTIVATIONS)}, not {activation!r}")


def _activated(y: Tensor, activation: str) -> Tensor:
    if activation == "gelu":
        return torch.nn.functional.gelu(y)
    return torch.relu(y) if activation == "relu" else y


def _rounding(x: Tensor, weight: Tensor, dtype: torch.dtype | None) -> torch.dtype | None:
    """Return the dtype that a product is rounded to; None where it is computed in x's own dtype."""
    if dtype is not None and not dtype == x.dtype == weight.dtype:
        return dtype
    if not on_cpu(x) or torch.float64 in (x.dtype, weight.dtype) or weight.is_complex():
        return None
    if torch.is_autocast_enabled("cpu"):
        return torch.get_autocast_dtype("cpu")
    return x.dtype if x.dtype == weight.dtype and x.dtype in _SIXTEEN_BIT else None


def _of_rows(x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool, in_order: bool) -> Tensor:
    """Compute the product for x [B, R, I]."""
    models, outputs, _ = weight.shape
    if not own_products(x, weight, bias):
        if is_frozen(weight):
            one = None if bias is None else bias[:1]
            return linear_composition(folded(x), weight[:1], one, relu).view(models, -1, outputs)
        if (
            not on_gpu(x)
            or x.dtype != weight.dtype
            or tracing()
            or transforming()
            or torch.is_autocast_enabled(x.device.type)
        ):
            return linear_composition(x, weight, bias, relu)
        product = _batched(x, weight, bias)
        return torch.relu(product) if relu else product
    return _of_own_rows(x, weight, bias, relu, in_order)


def _of_own_rows(x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool, in_order: bool) -> Tensor:
    """Compute the product for x [B, R, I] where `own_products` says so."""
    models, outputs, _ = weight.shape
    result: Tensor
    if in_order or (_VECTORS and _few(x.shape[1], weight)):
        if is_kept(weight):  # each element is one sum in order, in whatever company
            one = None if bias is None else bias[:1]
            return _by_tiles(folded(x), weight[:1], one, relu).reshape(models, -1, outputs)
        if in_order:
            return _by_tiles(x, weight, bias, relu)
        return _eager(x, weight, bias, relu)
    if tracing():
        return linear_composition(x, weight, bias, relu)
    if models == 1 and outputs < WIDE:
        row_bias = None if bias is None else bias.squeeze(0)
        result = torch.nn.functional.linear(x.squeeze(0), weight.squeeze(0), row_bias).unsqueeze(0)
    else:
        result = _one_by_one(x, weight, bias)
    return torch.relu(result) if relu else result


def _few(rows: int, weight: Tensor) -> bool:
    """Return True where this package's product takes less time than the library's."""
    numbers = weight.shape[1:].numel()
    return rows * numbers < LARGE and (rows > FEW_ROWS or numbers < MANY_WEIGHTS)


def _by_tiles(x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
    """Compute the product of x [B, R, I] by tiles, with one order of summation for any number of rows."""
    rows = x.shape[1]
    if rows > DOT_ROWS or x.shape[2] < DOT_INPUTS:
        return _eager(x, weight, bias, relu)
    padded = torch.nn.functional.pad(x, (0, 0, 0, DOT_ROWS + 1 - rows))
    return _eager(padded, weight, bias, relu)[:, :rows]


def own_products(a: Tensor, b: Tensor, c: Tensor | None = None) -> bool:
    """Return True if this package's products may be used: on a CPU, with one dtype, without tracing or transforms."""
    dtype = a.dtype
    return (
        dtype in _OWN
        and b.dtype == dtype
        and on_cpu(a)
        and on_cpu(b)
        and (c is None or (c.dtype == dtype and on_cpu(c)))
        and not torch.is_autocast_enabled("cpu")
        and not transforming()
    )
