# SPDX-License-Identifier: MIT
"""Matrix products whose bits do not depend on their number; those of torch's batched product do."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import InvalidArgument
from ._linear import DOT_INPUTS, DOT_ROWS, LARGE, column_sums, own_products, product_into, products, products_one_by_one
from .device import on_cpu
from .library import differentiable, fake, in_gradient, instruction_set, library, saves, tracing
from .shared import is_kept

_matmul = library.matmul.default
_matmul_gradient = in_gradient(_matmul)
_VECTORS = instruction_set() != "generic"


fake("matmul", lambda a, b: a.new_empty((a.shape[0], a.shape[1], b.shape[2])))


def _matmul_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    a, b = ctx.saved_tensors
    needs_a, needs_b = ctx.needs_input_grad
    return (
        _matmul_gradient(grad, b.transpose(1, 2)) if needs_a else None,
        _matmul_gradient(a.transpose(1, 2), grad) if needs_b else None,
    )


_product = differentiable(_matmul, saves(0, 1), _matmul_backward, torch.bmm)


def _matmul_composition(a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
    return torch.bmm(a, b) if bias is None else torch.baddbmm(bias.unsqueeze(1), a, b)


def _gradients(grad: Tensor, a: Tensor, b: Tensor, needs_a: bool, needs_b: bool, needs_bias: bool) -> tuple[Any, ...]:
    da = a.new_empty(a.shape) if needs_a else None
    db = b.new_empty(b.shape) if needs_b else None
    for model in reversed(range(len(grad))):  # the last is what a forward pass has left in the caches
        if db is not None:
            product_into(a[model].t(), grad[model], db[model])
        if da is not None:
            product_into(grad[model], b[model].t(), da[model])
    return da, db, column_sums(grad) if needs_bias else None


_one_by_one = products(products_one_by_one, _gradients, _matmul_composition)


def matmul(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute a @ b, plus a `bias` [B, N], of each model, for a [B, ..., M, K] and b [B, ..., K, N].

    The rules are those of `torch.matmul` for one model: [B, K] is a vector, and dimensions between B and the matrix
    broadcast. On a CPU the product of a matrix has the same bits alone and among others.
    """
    if bias is None:
        found = _small(a, b)
        if found is not None:
            return found
    elif not _is_large(a, b, bias):
        product = matmul(a, b)
        return product + bias.reshape(len(a), *(1,) * (product.dim() - 2), -1)
    if a.dim() < 2 or b.dim() < 2 or len(a) != len(b):
        raise InvalidArgument(f"matmul: both must be [B, ...] with the same B; not {list(a.shape)} and {list(b.shape)}")
    if a.dim() == 2:
        return matmul(a.unsqueeze(1), b).squeeze(1 if b.dim() == 2 else -2)
    if b.dim() == 2:
        return matmul(a, b.unsqueeze(-1)).squeeze(-1)
    (rows, depth), (other, columns) = a.shape[-2:], b.shape[-2:]
    if depth != other:
        raise InvalidArgument(f"matmul: {list(a.shape)} and {list(b.shape)} have no product: {depth} and {other}")
    wide = is_kept(b) and b.shape[1:-2].numel() == 1
    if wide and (not own_products(a, b) or (rows * depth * columns < LARGE and _VECTORS)):
        one, matrix = a.reshape(1, -1, depth), b[:1].reshape(1, depth, columns)
        return _by_shared(one, matrix, own_products(a, b)).reshape(*a.shape[:-1], columns)
    if a.dim() > 3 and a.dim() >= b.dim() and b.shape[1:-2].numel() == 1 and bias is None:  # one matrix per model
        return matmul(a.flatten(1, -2), b.reshape(len(b), depth, columns)).view(*a.shape[:-1], columns)
    if not own_products(a, b):
        return torch.matmul(*_between(a, b))
    if _is_large(a, b, bias):
        one = a.reshape(len(a), a.shape[1:-1].numel(), depth)
        return _one_by_one(one, b.reshape(len(b), depth, columns), bias).view(*a.shape[:-1], columns)
    if rows * depth * columns >= LARGE or not _VECTORS:
        return (
            torch.stack([torch.matmul(x, y) for x, y in zip(a, b, strict=True)])
            if len(a)
            else (torch.matmul(*_between(a, b)))
        )
    if a.dim() == b.dim() == 3:
        return _product(a, b)
    a, b = _between(a, b)
    shape = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    count = shape.numel()
    a = a.expand(*shape, rows, depth).reshape(count, rows, depth)
    b = b.expand(*shape, depth, columns).reshape(count, depth, columns)
    return _product(a, b).view(*shape, rows, columns)


def _small(a: Tensor, b: Tensor) -> Tensor | None:
    """Compute small products of matrices as many in `a` as in `b`, the usual case; None for others."""
    sizes, others = a.shape, b.shape
    if len(sizes) < 3 or sizes[:-2] != others[:-2] or sizes[-1] != others[-2] or not _VECTORS:
        return None
    if sizes[-2] * sizes[-1] * others[-1] >= LARGE or not sizes[0] or is_kept(b) or not own_products(a, b):
        return None
    if len(sizes) == 3:
        return _product(a, b)
    found = _product(a.flatten(0, -3), b.flatten(0, -3))
    return found.view(*sizes[:-1], others[-1])


def _is_large(a: Tensor, b: Tensor, bias: Tensor | None) -> bool:
    """Return True for a large product of one matrix per model, which the library computes model by model into place."""
    if a.dim() < 3 or b.dim() < 3 or b.shape[1:-2].numel() != 1 or a.dim() < b.dim() or not len(a):
        return False
    large = a.shape[-2:].numel() * b.shape[-1] >= LARGE or not _VECTORS
    return large and own_products(a, b, bias) and not tracing()


def _by_shared(rows: Tensor, matrix: Tensor, own: bool) -> Tensor:
    """Multiply the rows of all models, [1, R, K], by a matrix that they share, [1, K, N]."""
    if not own:
        return torch.bmm(rows, matrix)
    count, depth = rows.shape[1:]
    # Few rows would be summed in another order than many, as a model's bits among others are.
    missing = DOT_ROWS + 1 - count if depth >= DOT_INPUTS else 0
    padded = torch.nn.functional.pad(rows, (0, 0, 0, missing)) if missing > 0 else rows
    return _product(padded, matrix)[:, :count]


def _between(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Give both tensors the same number of dimensions between B and the matrix."""
    more = a.dim() - b.dim()
    return (
        a.reshape(a.shape[:1] + (1,) * -more + a.shape[1:]) if more < 0 else a,
        b.reshape(b.shape[:1] + (1,) * more + b.shape[1:]) if more > 0 else b,
    )


_pixels = library.pixel_products.default
_pixels_gradient = in_gradient(_pixels)


fake("pixel_products", lambda x, weight: x.new_empty((*x.shape[:2], weight.shape[1], x.shape[3])))
fake("sum_of_products", lambda a, b: a.new_empty((a.shape[0], a.shape[2], b.shape[3])))


def _weight_gradient(grad: Tensor, x: Tensor) -> Tensor:
    """Sum grad [B, N, O, P] times x [B, N, I, P] over samples and pixels: [B, O, I]."""
    if x.size(1) == 0:
        return grad.new_zeros(len(x), grad.size(2), x.size(2))
    if grad.size(2) > x.size(2):  # the second factor is packed, so it is the smaller one
        return library.sum_of_products.default(grad, x.mT)
    return library.sum_of_products.default(x, grad.mT).mT.contiguous()


def _pixel_products_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, weight = ctx.saved_tensors
    needs_x, needs_weight, needs_bias = ctx.needs_input_grad
    return (
        _pixels_gradient(grad, weight.mT, None) if needs_x else None,
        _weight_gradient(grad, x) if needs_weight else None,
        grad.sum(1).sum(-1) if needs_bias else None,  # whole samples first: their numbers fill the vectors
    )


def _pixel_products_composition(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    y = torch.matmul(weight.unsqueeze(1), x)
    return y if bias is None else y + bias[:, None, :, None]


_eager_pixels = differentiable(_pixels, saves(0, 1), _pixel_products_backward, _pixel_products_composition)


def pixel_products(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply the channels of each pixel of x [B, N, I, P] by weight [B, O, I], and add bias [B, O].

    This is a 1 x 1 convolution of images in torch's usual memory format. The result [B, N, O, P] is contiguous.
    """
    return (_eager_pixels if on_cpu(x) else _pixel_products_composition)(x, weight, bias)
