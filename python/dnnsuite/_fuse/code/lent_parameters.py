# SPDX-License-Identifier: MIT
"""Parameters of B models lent to B plain modules, and their gradients joined again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ..._torch import transforming
from ...ops.library import applied
from ...ops.partial_use import join_gradients

TOGETHER_BYTES = 1 << 24  # of parameters whose gradients are held until all models have theirs

# What modules hold for a call: module, the name of its registry, the name in it, and how to make what is lent.
Lent = Sequence[tuple[torch.nn.Module, str, str, Callable[[], torch.Tensor]]]


class _Lent(torch.autograd.Function):
    """Views of each model's part of stacked parameters; model i's gradient becomes row i of the stacked one."""

    @staticmethod
    def forward(ctx: Any, apart: bool, *stacked: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.stacked, ctx.B = stacked, stacked[0].size(0)
        return tuple(part for parameter in stacked for part in _views(parameter, apart))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[Any, ...]:
        parts = [grads[at : at + ctx.B] for at in range(0, len(grads), ctx.B)]
        return None, *map(join_gradients, ctx.stacked, parts)


_lend = applied(_Lent)


def _views(parameter: torch.Tensor, apart: bool) -> Sequence[torch.Tensor]:
    """View each model's part; `apart` gives each a version counter of its own, for code that writes into it.

    Parameters with another memory order are copied, or torch's layers would give results in that order too.
    """
    whole = parameter.detach()
    now = whole.stride()
    wanted = _torchs_strides(whole.shape, now)
    if wanted is None:
        parts = (whole if apart else whole.contiguous()).unbind(0)
    else:
        parts = (whole if wanted == now else whole.as_strided(whole.shape, wanted)).unbind(0)
    return [part.data for part in parts] if apart else parts


@functools.lru_cache(maxsize=4096)
def _torchs_strides(shape: torch.Size, now: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the strides `now` of `[B, ...]` as torch gives them to dimensions of size 1; None in another memory order.

    From the strides of a filter of one input channel torch would read that its result is to be channels last.
    """
    strides: list[int] = []
    step = 1
    for size in reversed(shape[1:]):
        strides.insert(0, step)
        step *= size
    in_order = all(a == b for size, a, b in zip(shape[1:], strides, now[1:], strict=True) if size != 1)
    return (now[0], *strides) if in_order or not step else None


def lies_in_another_order(parameter: torch.Tensor) -> bool:
    """Return True for stacked parameters whose memory order is not that of their dimensions, as channels-last
    filters."""
    return not parameter[:1].is_contiguous()


def lent(stacked: Sequence[torch.Tensor], apart: bool = False) -> list[Sequence[torch.Tensor]]:
    """Give each of the `stacked` `[B, ...]` as B tensors through which gradients reach it.

    Args:
        apart: the tensors may be written into without autograd taking it for a change of the others.
    """
    if transforming():
        return [parameter.unbind(0) for parameter in stacked]
    found: list[Any] = [None] * len(stacked)
    wanted = []
    for place, parameter in enumerate(stacked):
        if torch.is_grad_enabled() and parameter.requires_grad:
            wanted.append(place)
        else:
            found[place] = _views(parameter, apart)
    for group in _groups(stacked, wanted):
        parts = _lend(apart, *(stacked[place] for place in group))
        B = stacked[group[0]].size(0)
        for number, place in enumerate(group):
            found[place] = parts[number * B : number * B + B]
    return found


def _groups(stacked: Sequence[torch.Tensor], places: Sequence[int]) -> Iterator[list[int]]:
    """Split `places` into groups of parameters that are small together."""
    group: list[int] = []
    size = 0
    for place in places:
        group.append(place)
        size += stacked[place].nbytes
        if size > TOGETHER_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


@contextmanager
def lent_again(lent: Lent) -> Iterator[None]:
    """Context manager: modules hold what they were `lent` for a call; buffers as they are now in the array."""
    held = [(owner, names, name, getattr(owner, names)[name]) for owner, names, name, _ in lent]
    parts = [part() for *_, part in lent]
    try:
        for (owner, names, name, _), part in zip(lent, parts, strict=True):
            put_at(owner, names, name, part)
        yield
    finally:
        for (owner, names, name, value), part in zip(held, parts, strict=True):
            now = getattr(owner, names)[name]
            if now is not part and now is not None:
                part.copy_(now.detach())
            put_at(owner, names, name, value)


def put_at(module: torch.nn.Module, names: str, name: str, value: torch.Tensor) -> None:
    """Replace a parameter or buffer, also where the module holds it in a plain list (as torch's RNNs do)."""
    held = getattr(module, names)
    for attribute in vars(module).values():
        if type(attribute) is list:
            for place, item in enumerate(attribute):
                if item is held[name]:
                    attribute[place] = value
    held[name] = value
