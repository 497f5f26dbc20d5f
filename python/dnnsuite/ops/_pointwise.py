# SPDX-License-Identifier: MIT
"""Numbers of a counter-based generator: dropout, alone and fused with bias, activation and residual, and random
numbers of each model's stream, on a CPU by the library, on a GPU by a kernel in Triton."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from .device import on_cpu, triton_runs
from .library import (
    below_autograd,
    differentiable,
    fake,
    fakes_like,
    in_gradient,
    library,
    saves,
    tracing,
    transforming,
)

_dropout = library.dropout.default
_dropout_again = in_gradient(_dropout)
_act_backward = library.bias_act_dropout_backward.default


fakes_like("x", "dropout", "bias_dropout_add", "bias_act_dropout")
fake(
    "bias_act_dropout_backward",
    lambda grad, bias: (grad.new_empty(grad.shape), grad.new_empty(0 if bias is None else bias.shape)),
)


def _dropout_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    p, rng = ctx.saved_tensors
    return _dropout_again(grad, p, rng), None, None


def _add_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    bias, p, rng = ctx.saved_tensors
    if bias is None and p is None:
        return grad, None, grad, None, None
    dx, dbias = _act_backward(grad, None, bias, "none", p, rng)
    return dx, None if bias is None else dbias, grad, None, None


def _act_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, bias, activation, p, rng = inputs
    ctx.activation = activation
    ctx.save_for_backward(None if activation == "none" else x, bias, p, rng)


def _act_grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, bias, p, rng = ctx.saved_tensors
    dx, dbias = _act_backward(grad, x, bias, ctx.activation, p, rng)
    return dx, None if bias is None else dbias, None, None, None


def rows_of(parameter: Tensor, x: Tensor) -> Tensor:
    """Reshape a parameter [B, D] so that it broadcasts to x [B, ..., D]."""
    return parameter.view(len(parameter), *[1] * (x.dim() - 2), -1)


def _dropout_composition(x: Tensor, p: Tensor | None, rng: Tensor | None) -> Tensor:
    if p is None or rng is None:
        return x
    with torch.no_grad():
        factors = _dropout(torch.ones_like(x), p, rng)
    return x * factors


def add_composition(x: Tensor, bias: Tensor | None, residual: Tensor, p: Tensor | None, rng: Tensor | None) -> Tensor:
    """Compose bias_dropout_add of torch's operators."""
    return residual + _dropout_composition(x if bias is None else x + rows_of(bias, x), p, rng)


_ACTIVATIONS = {"none": lambda x: x, "relu": torch.relu, "gelu": torch.nn.functional.gelu}


def _act_composition(x: Tensor, bias: Tensor | None, activation: str, p: Tensor | None, rng: Tensor | None) -> Tensor:
    return _dropout_composition(_ACTIVATIONS[activation](x if bias is None else x + rows_of(bias, x)), p, rng)


_eager_dropout = differentiable(_dropout, saves(1, 2), _dropout_backward, _dropout_composition)
_add = differentiable(library.bias_dropout_add.default, saves(1, 3, 4), _add_backward, add_composition)
_act = differentiable(library.bias_act_dropout.default, _act_setup, _act_grad, _act_composition)


def dropout(x: Tensor, p: Tensor, rng: Tensor) -> Tensor:
    """Zero elements of x [B, ...] with the probability of each model, and scale the others by 1 / (1 - p).

    Args:
        p: probabilities, float32 [B].
        rng: (key, step) of each model, int64 [B, 2]. Equal pairs give equal masks, so the mask is not stored but
            computed again in the backward pass. `cpp/fused/README.md` defines it.
    """
    return _eager_dropout(x, p, rng)


def bias_dropout_add(
    x: Tensor, bias: Tensor | None, residual: Tensor, p: Tensor | None = None, rng: Tensor | None = None
) -> Tensor:
    """Compute residual + dropout(x + bias) in one pass: x and residual are [B, ..., D], bias is [B, D].

    Without `p` nothing is dropped.
    """
    return _add(x, bias, residual, p, rng)


def bias_act_dropout(
    x: Tensor, bias: Tensor | None = None, activation: str = "none", p: Tensor | None = None, rng: Tensor | None = None
) -> Tensor:
    """Compute dropout(activation(x + bias)) in one pass, for x [B, ..., D] and bias [B, D].

    `activation` is 'none', 'relu' or 'gelu' (the exact form, with erf). The backward pass computes the gradients of x
    and bias together; it needs x, but not the result.
    """
    return _act(x, bias, activation, p, rng)


_numbers = library.random_numbers.default
_OWN = (torch.float32, torch.float64)


fakes_like("like", "random_numbers")


def _on_a_gpu(like: Tensor, rng: Tensor, distribution: str, first: float, second: float) -> Tensor:
    from ._triton_random import random_numbers as by_triton

    return by_triton(like, rng, distribution, first, second)


_library = torch.library.Library("dnnsuite", "IMPL")
_library.impl("random_numbers", _on_a_gpu, "CUDA")


def draws_numbers(like: Tensor, rng: Tensor) -> bool:
    """Return True if `random_numbers(like, rng, ...)` may be called: for float32 and float64, both on a CPU, or both on
    a GPU for which Triton compiles."""
    if like.dtype not in _OWN or like.dim() == 0 or transforming():
        return False
    if like.is_cuda:
        return rng.device == like.device and _compiles(like.device)
    return on_cpu(like) and on_cpu(rng)


@cache
def _compiles(device: torch.device) -> bool:
    def one() -> Tensor:
        rng = torch.zeros(1, 2, dtype=torch.int64, device=device)
        return _on_a_gpu(torch.empty(1, 1, device=device), rng, "uniform", 0, 1)

    return triton_runs(one)


def random_numbers(like: Tensor, rng: Tensor, distribution: str, first: float, second: float = 0.0) -> Tensor:
    """Draw numbers for each model into a new contiguous tensor of the shape and dtype of `like` [B, ...].

    A number is a function of its model's (key, step) and its place among the model's numbers, which
    `cpp/fused/README.md` defines; neither other models nor threads change it.

    Args:
        rng: (key, step) of each model, int64 [B, 2].
        distribution: 'uniform' from `first` to below `second`; 'normal' with mean `first` and deviation `second`;
            'bernoulli', 1 with probability `first`; 'exponential' with rate `first`.
    """
    if tracing():
        return _numbers(like, rng, distribution, first, second)
    with below_autograd():  # it has no gradient
        return _numbers(like, rng, distribution, first, second)
