# SPDX-License-Identifier: MIT
"""Rules of matrix products: the models are one more batch dimension."""

from __future__ import annotations

from typing import Any

import torch

from ... import ops
from ...nn.model_tensor import ModelTensor, wrap_all
from .table import map_over_models, rule


@rule("matmul rmatmul mm bmm mv dot")
def matmul(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    a, b = args[:2]
    if func.__name__ == "__rmatmul__":
        a, b = b, a
    if type(a) is ModelTensor and type(b) is ModelTensor and a.dim() == b.dim() > 1:
        return wrap_all(ops.matmul(a.value, b.value))
    if a.dim() == 0 or b.dim() == 0:
        raise RuntimeError("both arguments to matmul need to be at least 1D, but they are 0D")
    column, row = a.dim() == 1, b.dim() == 1
    rank = max(a.dim() + column, b.dim() + row, 2)
    left, right = _operand(a, rank, 0), _operand(b, rank, 1)
    result = product(left, right)
    if column:
        result = result.squeeze(-2)
    if row:
        result = result.squeeze(-1)
    return wrap_all(result)


def product(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Compute `left @ right`, plus a `bias` [B, N]; dimension 0 is B, or 1 for a shared operand."""
    B = max(left.size(0), right.size(0))
    return ops.matmul(_widened(left, B), _widened(right, B), None if bias is None else _widened(bias, B))


def _widened(operand: torch.Tensor, B: int) -> torch.Tensor:
    return operand if operand.size(0) == B else operand.expand(B, *operand.shape[1:])


def _operand(tensor: Any, rank: int, vector_place: int) -> torch.Tensor:
    """Shape an operand as `[B or 1, batch..., M, K]`; a vector becomes a matrix of one row or column."""
    value = tensor.value if type(tensor) is ModelTensor else tensor.unsqueeze(0)
    if value.dim() == 2:
        value = value.unsqueeze(1) if vector_place == 0 else value.unsqueeze(2)
    return value.reshape(value.size(0), *(1,) * (rank + 1 - value.dim()), *value.shape[1:])


@rule("addmm baddbmm")
def addmm(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    base, a, b = args[:3]
    beta, alpha = kwargs.get("beta", 1), kwargs.get("alpha", 1)
    if func.__name__ == "addmm" and base.shape == b.shape[1:] and alpha == beta == 1:
        offsets = base.value if type(base) is ModelTensor else base.unsqueeze(0)
        return wrap_all(product(_operand(a, 2, 0), _operand(b, 2, 1), offsets))
    result = matmul(torch.matmul, (a, b), {})
    return (result if alpha == 1 else result * alpha) + (base if beta == 1 else base * beta)


@rule("einsum")
def einsum(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Add a letter for the models to each per-model operand and to the result."""
    equation, *tensors = args
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = list(tensors[0])
    if not isinstance(equation, str):
        return map_over_models(func, args, kwargs)
    left, arrow, right = equation.replace(" ", "").partition("->")
    letter = next(c for c in "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvutsrqponmlkjihgfedcba" if c not in equation)
    if not arrow:
        letters = sorted(set(left) - set(",."))
        right = ("..." if "..." in left else "") + "".join(c for c in letters if left.count(c) == 1)
    terms = [
        letter + term if type(tensor) is ModelTensor else term
        for term, tensor in zip(left.split(","), tensors, strict=True)
    ]
    values = [t.value if type(t) is ModelTensor else t for t in tensors]
    return wrap_all(torch.einsum(f"{','.join(terms)}->{letter}{right}", *values))
