# SPDX-License-Identifier: MIT
"""Linear layers of B models, with the activation behind them where there is one.

On a CPU products are our own up to `LARGE` multiplications for a model: nothing is packed but a weight in the forward
pass, and each element is one sum in order, so a model's bits depend on its own shape alone (1.2 to 2 times as fast as
torch's batched product at 32 x 128 x 128, `benchmarks/ops/bench_linear.py`). Larger ones go to the library that torch
calls, model by model into their places of the result; there both reach the processor's peak. On CUDA torch's batched
product does it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import InvalidArgument
from ._library import differentiable, gradients_through, instruction_set, library, remember, tracing

__all__ = ["linear", "linear_composition", "own_products"]

LARGE = 2**24
"""Multiplications of one model from which a product of its own is worth a library's call."""

_linear = library.linear.default
_linear_backward = library.linear_backward.default
_VECTORS = instruction_set() != "generic"

ACTIVATIONS = {"none": lambda x: x, "relu": torch.relu, "gelu": torch.nn.functional.gelu}


@torch.library.register_fake("dnnsuite::linear")
def _(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> tuple[Tensor, Tensor]:
    y = x.new_empty((*x.shape[:2], weight.shape[1]))
    return y, torch.empty_like(y) if activation == "gelu" else x.new_empty(0)


@torch.library.register_fake("dnnsuite::linear_backward")
def _(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    saved: Tensor | None,
    activation: str,
    needs_x: bool,
    needs_weight: bool,
    needs_bias: bool,
) -> tuple[Tensor, ...]:
    return (
        x.new_empty(x.shape if needs_x else 0),
        x.new_empty(weight.shape if needs_weight else 0),
        x.new_empty(weight.shape[:2] if needs_bias else 0),
    )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weight, _, activation = inputs
    y, before = output
    ctx.activation = activation
    ctx.mark_non_differentiable(before)
    ctx.save_for_backward(x, weight, {"none": None, "relu": y}.get(activation, before))


def _backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
    x, weight, saved = ctx.saved_tensors
    needs = ctx.needs_input_grad[:3]
    grads = _linear_backward(grad, x, weight, saved, ctx.activation, *needs)
    return (*(g if needed else None for g, needed in zip(grads, needs, strict=True)), None)


def linear_composition(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str = "none") -> Tensor:
    """The operator in torch's: x [B, R, I], weight [B, O, I], bias [B, O]."""
    if bias is None:
        return ACTIVATIONS[activation](torch.bmm(x, weight.transpose(1, 2)))
    return ACTIVATIONS[activation](torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2)))


_eager = differentiable(_linear, _setup, _backward, linear_composition)


class _OneByOne(torch.autograd.Function):
    """Large products: x [B, R, I], weight [B, O, I], bias [B, O] or None."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        remember(ctx, (x, weight, bias))
        y = x.new_empty(*x.shape[:2], weight.shape[1])
        for model in range(len(x)):
            if bias is None:
                torch.mm(x[model], weight[model].t(), out=y[model])
            else:
                torch.addmm(bias[model], x[model], weight[model].t(), out=y[model])
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            return gradients_through(linear_composition, ctx, (grad,))
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        dx = x.new_empty(x.shape) if needs_x else None
        dweight = weight.new_empty(weight.shape) if needs_weight else None
        for model, g in enumerate(grad):
            if dx is not None:
                torch.mm(g, weight[model], out=dx[model])
            if dweight is not None:
                torch.mm(g.t(), x[model], out=dweight[model])
        return dx, dweight, grad.sum(1) if needs_bias else None


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none") -> Tensor:
    """activation(x @ weightᵀ + bias) of each model: x [B, ..., I], weight [B, O, I], bias [B, O] to [B, ..., O].

    `activation` is 'none', 'relu' or 'gelu' (the exact form). An x that all models share may be an expanded tensor
    (stride 0 in dimension 0); it is not copied.
    """
    models, outputs, inputs = weight.shape
    if x.dim() < 2 or x.shape[0] != models or x.shape[-1] != inputs:
        raise InvalidArgument(
            f"linear: x must be [B, ..., I] with B = {models} and I = {inputs} as in weight "
            f"{list(weight.shape)}, not {list(x.shape)}"
        )
    if bias is not None and bias.shape != (models, outputs):
        raise InvalidArgument(f"linear: bias must be {[models, outputs]}, not {list(bias.shape)}")
    if activation not in ACTIVATIONS:
        raise InvalidArgument(f"linear: activation must be one of {list(ACTIVATIONS)}, not {activation!r}")
    if x.dim() == 3:
        return _of_rows(x, weight, bias, activation)
    rows = x.reshape(models, x.shape[1:-1].numel(), inputs)
    return _of_rows(rows, weight, bias, activation).view(*x.shape[:-1], outputs)


def _of_rows(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    """x [B, R, I]."""
    models, outputs, inputs = weight.shape
    large = x.shape[1] * inputs * outputs >= LARGE
    if not own_products(x, weight, bias):
        return linear_composition(x, weight, bias, activation)
    if not large and _VECTORS:
        result: Tensor = (_linear if tracing() else _eager)(x, weight, bias, activation)[0]
        return result
    if tracing():
        return linear_composition(x, weight, bias, activation)
    if models == 1:
        row_bias = None if bias is None else bias.squeeze(0)
        y = torch.nn.functional.linear(x.squeeze(0), weight.squeeze(0), row_bias).unsqueeze(0)
    else:
        y = _OneByOne.apply(x, weight, bias)
    return ACTIVATIONS[activation](y)


def own_products(*tensors: Tensor | None) -> bool:
    """Whether our own products may be used: on a CPU, of one dtype, with no one rewriting the calls."""
    first = tensors[0]
    return (
        first is not None
        and first.dtype in (torch.float32, torch.float64)
        and all(t is None or (t.dtype == first.dtype and t.device.type == "cpu") for t in tensors)
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._are_functorch_transforms_active()
    )
