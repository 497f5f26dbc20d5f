# SPDX-License-Identifier: MIT
"""Factories and random numbers in a model's code, where each model must have its own tensor.

`torch.zeros(n)` in a forward is one tensor for all models, and cheapest so. But what a model then writes into it is its
own, and so are random numbers: in code that was seen to do either, what makes tensors makes one for each model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..._torch import hidden_from_modes, tree_leaves
from ...nn.model_tensor import ModelTensor, WritesShared, state
from ...nn.random_draws import draw
from ..rules.random import next_stream

_MEMORY = frozenset(
    [
        *(
            getattr(torch, f"{name}{like}")
            for name in ("empty", "zeros", "ones", "full")
            for like in ("", "_like")
        ),
        *(getattr(torch.Tensor, f"new_{name}") for name in ("empty", "zeros", "ones", "full")),
        *(torch.arange, torch.eye, torch.linspace, torch.logspace, torch.tensor),
        *(torch.clone, torch.Tensor.clone),
    ]
)
_DRAWN = frozenset(
    getattr(torch, name)
    for name in (
        *("rand", "randn", "rand_like", "randn_like", "randint", "randperm"),
        *("normal", "bernoulli", "multinomial", "poisson", "binomial"),
    )
)
_DRAWN_INTO = frozenset(
    getattr(torch.Tensor, f"{name}_")
    for name in (
        "normal",
        "uniform",
        "exponential",
        "bernoulli",
        "random",
        "geometric",
        "log_normal",
        "cauchy",
    )
)
_LIKE = {torch.rand_like: torch.rand, torch.randn_like: torch.randn}


class PerModelMode(TorchFunctionMode):
    """Function mode in which each model draws its own numbers and, with `memory`, gets its own of new tensors."""

    def __init__(self, memory: bool) -> None:
        super().__init__()
        self._special = _DRAWN | _DRAWN_INTO | (_MEMORY if memory else frozenset())

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in self._special and state.B:
            own = any(type(leaf) is ModelTensor for leaf in tree_leaves((args, kwargs)))
            if not own and kwargs.get("out") is None and kwargs.get("generator") is None:
                return _made(func, args, kwargs)
        return func(*args, **kwargs)


def _made(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    if func in _DRAWN_INTO:
        raise WritesShared(f"{func.__name__} draws for a tensor that all models share")
    if func in _MEMORY:
        one = func(*args, **kwargs)
        return ModelTensor(one.unsqueeze(0).repeat(state.B, *(1,) * one.dim()))
    state.drew = True
    if func in _LIKE:
        like = args[0]
        kwargs = {"dtype": like.dtype, "device": like.device, **kwargs}
        kwargs.pop("memory_format", None)
        func, args = _LIKE[func], (like.shape,)
    return ModelTensor(draw(func.__name__, args, kwargs, [], next_stream(state.B)))


def watched(owner: Any, call: Callable[[], Any]) -> Any:
    """Call code of all models; each model draws numbers of its own if the code draws any.

    `PerModelMode` costs time in every torch function, so it is on for the first call, and later only where numbers
    were drawn. Code that begins to draw later is noticed by torch's generator after the call; the next call is right.
    """
    seen: dict[Any, bool] = owner.__dict__.setdefault("_fused_draws", {})
    key = (owner.training, torch.is_grad_enabled())
    if not seen.get(key, True):
        before = _generators_now()
        result = call()
        if before != _generators_now():
            del seen[key]
        return result
    drew, state.drew = state.drew, False
    try:
        with making(memory=False):
            result = call()
        seen[key] = state.drew
        return result
    finally:
        state.drew = drew


def _generators_now() -> list[bytes]:
    # Out of sight of a step that is recorded, which would take these tensors for its own.
    with hidden_from_modes():
        found = [torch.get_rng_state()]
        if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
            found.append(torch.cuda.get_rng_state())
        return [one.numpy().tobytes() for one in found]


@contextmanager
def making(memory: bool) -> Iterator[None]:
    """`PerModelMode`, unless what is on already does as much."""
    before, wanted = state.making, 2 if memory else 1
    if before >= wanted:
        yield
        return
    state.making = wanted
    try:
        with PerModelMode(memory):
            yield
    finally:
        state.making = before
