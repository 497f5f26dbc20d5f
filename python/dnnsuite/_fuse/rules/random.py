# SPDX-License-Identifier: MIT
"""Rules of functions that draw random numbers: each model has a stream of its own, whatever its slot or neighbours."""

from __future__ import annotations

from typing import Any

import torch

from ...nn.model_tensor import ModelTensor, NotFusable, WritesShared, state, wrap_all
from ...nn.random_streams import FUNCTION_STREAM, advance, generators_of
from .table import rule, settle


def next_stream(B: int) -> torch.Tensor:
    """(key, step) `[B, 2]` for one draw by a function; the next draw gets another step."""
    stream: torch.Tensor | None = getattr(state.random, "_buffers", {}).get(FUNCTION_STREAM)
    if stream is None or stream.size(0) != B:
        raise NotFusable("random numbers are drawn outside an array's forward")
    return advance(stream)


def _generators(B: int, device: torch.device) -> list[torch.Generator]:
    return generators_of(next_stream(B), device)


_FILLS = {
    "rand_like": torch.Tensor.uniform_,
    "randn_like": torch.Tensor.normal_,
}


@rule("rand_like randn_like")
def like(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    fill = _FILLS[func.__name__]
    x = torch.empty_like(args[0].value, **kwargs).contiguous()
    for part, generator in zip(x, _generators(x.size(0), x.device), strict=True):
        fill(part, generator=generator)
    return wrap_all(x)


@rule(
    "normal uniform exponential bernoulli geometric log_normal cauchy random randint_like multinomial poisson",
    writes=True,
)
def drawn(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Functions with a generator argument, once for each model."""
    first = args[0]
    if type(first) is not ModelTensor:
        raise WritesShared(f"{func.__name__} draws for a tensor that all models share")
    settle()
    B = first.value.size(0)
    drawn = []
    for index, generator in enumerate(_generators(B, first.value.device)):
        own = [a.value[index] if type(a) is ModelTensor else a for a in args]
        drawn.append(func(*own, **{**kwargs, "generator": generator}))
    return first if func.__name__.endswith("_") else wrap_all(torch.stack(drawn))
