# SPDX-License-Identifier: MIT
"""Arithmetic with its sums in another order, to see how far two right runs drift apart by rounding alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .._torch import TorchDispatchMode

aten = torch.ops.aten


class ReorderedSums(TorchDispatchMode):
    """Context manager: matrix products and convolutions form their sums in reverse order.

    Products run over their inner dimension backwards, ungrouped convolutions over their input channels, gradients of
    convolutions over the batch. Everything else is computed as before, random numbers too. Backward passes inside
    the block count.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        other = _OTHERS.get(func)
        if other is not None:
            return other(func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _product(func: Any, a: torch.Tensor, b: torch.Tensor) -> Any:
    return func(a.flip(-1), b.flip(-2))


def _added_product(func: Any, bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **scales: Any) -> Any:
    return func(bias, a.flip(-1), b.flip(-2), **scales)


def _convolution(func: Any, x: torch.Tensor, weight: torch.Tensor, bias: Any, *settings: Any) -> Any:
    transposed, groups = settings[3], settings[5]
    if groups == 1:
        x, weight = x.flip(1), weight.flip(0 if transposed else 1)
    return func(x, weight, bias, *settings)


def _convolution_backward(func: Any, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, *settings: Any) -> Any:
    grad_x, grad_weight, grad_bias = func(grad.flip(0), x.flip(0), weight, *settings)
    return None if grad_x is None else grad_x.flip(0), grad_weight, grad_bias


_OTHERS: dict[Any, Callable[..., Any]] = {
    aten.mm.default: _product,
    aten.bmm.default: _product,
    aten.addmm.default: _added_product,
    aten.baddbmm.default: _added_product,
    aten.convolution.default: _convolution,
    aten.convolution_backward.default: _convolution_backward,
}
