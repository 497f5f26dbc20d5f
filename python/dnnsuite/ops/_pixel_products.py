# SPDX-License-Identifier: MIT
"""Products of filters of one tap with contiguous images of B models: nothing is copied, samples share the filters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .device import on_cpu
from .library import differentiable, fake, in_gradient, library, tracing

_forward = library.pixel_products.default
_forward_gradient = in_gradient(_forward)
_sum_of_products = library.sum_of_products.default


fake("pixel_products", lambda x, weight: x.new_empty((*x.shape[:2], weight.shape[1], x.shape[3])))
fake("sum_of_products", lambda a, b: a.new_empty((a.shape[0], a.shape[2], b.shape[3])))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs[:2])


def _weight_gradient(grad: Tensor, x: Tensor) -> Tensor:
    """Sum grad [B, N, O, P] times x [B, N, I, P] over samples and pixels: [B, O, I]."""
    if x.size(1) == 0:
        return grad.new_zeros(len(x), grad.size(2), x.size(2))
    if grad.size(2) > x.size(2):  # the second factor is packed, so it is the smaller one
        wide: Tensor = _sum_of_products(grad, x.mT)
        return wide
    turned: Tensor = _sum_of_products(x, grad.mT)
    return turned.mT.contiguous()


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, weight = ctx.saved_tensors
    needs_x, needs_weight, needs_bias = ctx.needs_input_grad
    return (
        _forward_gradient(grad, weight.mT, None) if needs_x else None,
        _weight_gradient(grad, x) if needs_weight else None,
        grad.sum(1).sum(-1) if needs_bias else None,  # whole samples first: their numbers fill the vectors
    )


def _composition(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    y = torch.matmul(weight.unsqueeze(1), x)
    return y if bias is None else y + bias[:, None, :, None]


_eager = differentiable(_forward, _setup, _backward, _composition)


def pixel_products(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply the channels of each pixel of x [B, N, I, P] by weight [B, O, I], and add bias [B, O].

    This is a 1 x 1 convolution of images in torch's usual memory format. The result [B, N, O, P] is contiguous.
    """
    call = _forward if tracing() else _eager
    result: Tensor = (call if on_cpu(x) else _composition)(x, weight, bias)
    return result
