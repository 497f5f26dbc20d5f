# SPDX-License-Identifier: MIT
"""Layers of arrays that exist now, whose parameters are `[B, ...]`; parameters that only some of the models used in a
backward pass; and rows that an edit writes where they lie, so that all that refers to the tensors holds.

A single torch model leaves the gradient of a parameter that it did not use None, and its optimizer skips it. The
gradient of an array is one tensor: the part of a model that did not use the parameter is filled with -0.0, which leaves
sums unchanged, stays -0.0 through sums of gradients and positive factors, and differs by its sign from the zeros of a
model that did use it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

_layers: weakref.WeakValueDictionary[int, torch.nn.Module] = weakref.WeakValueDictionary()


class _Here(threading.local):
    forwards = 0  # of arrays that run on this thread, inside one another
    of_one = False  # tensors on this thread are those of one model


here = _Here()


@contextmanager
def of_one_model() -> Iterator[None]:
    """Context manager: no tensor that is asked for on this thread is a parameter of an array, and no layer is looked
    at for that."""
    before, here.of_one = here.of_one, True
    try:
        yield
    finally:
        here.of_one = before


def add(layer: torch.nn.Module) -> None:
    """Note that the parameters of `layer` are `[B, ...]`, those of B models."""
    _layers[id(layer)] = layer


def forget(layer: torch.nn.Module) -> None:
    """Note that `layer` has become one of a single model."""
    _layers.pop(id(layer), None)


def named_parameters() -> Iterator[tuple[str, torch.nn.Parameter]]:
    """Yield the layers' own names of their parameters, and these; one that several hold is there several times."""
    for reference in _layers.valuerefs():
        layer = reference()
        for name, parameter in () if layer is None else layer.__dict__.get("_parameters", {}).items():
            if parameter is not None:
                yield name, parameter


def parameters() -> Iterator[torch.nn.Parameter]:
    """Yield the parameters of the layers."""
    return (parameter for _, parameter in named_parameters())


def padded() -> set[int]:
    """Return the ids of parameters with room that some models do not use, as for adapters of larger rank."""
    layers: list[Any] = [layer for reference in _layers.valuerefs() if (layer := reference()) is not None]
    asked = [layer.padded_parameters() for layer in layers if hasattr(type(layer), "padded_parameters")]
    return {id(parameter) for each in asked for parameter in each}


def has_any(tensors: Iterable[torch.Tensor]) -> bool:
    """Return True if some of `tensors` are parameters of the layers."""
    wanted = {id(tensor) for tensor in tensors}
    return any(id(parameter) in wanted for parameter in parameters())


def is_parameter(tensor: torch.Tensor) -> bool:
    """Return True if `tensor` is a parameter of an array, or its `data`."""
    place, shape = tensor.data_ptr(), tensor.shape
    if not place or here.of_one:  # it has no memory
        return False
    return any(p.data_ptr() == place and p.shape == shape for p in parameters())


_known: dict[int, weakref.ref[Tensor]] = {}


def join_gradients(parameter: Tensor, grads: Sequence[Tensor | None]) -> Tensor | None:
    """Stack the models' gradients of a parameter `[B, ...]`; None if no model used it."""
    known = next((grad for grad in grads if grad is not None), None)
    if known is None:
        return None
    if any(grad is None for grad in grads):
        if parameter.is_leaf:
            note_partly_used(parameter)
        unused = torch.full_like(known, -0.0)
        grads = [unused if grad is None else grad for grad in grads]
    return torch.stack(list(grads))  # type: ignore[arg-type]


def note_partly_used(parameter: Tensor) -> None:
    """Note that parts of the gradient of `parameter` may be -0.0 because a model did not use it."""
    key = id(parameter)
    if key not in _known:
        _known[key] = weakref.ref(parameter, lambda _: _known.pop(key, None))


def partly_used(params: Sequence[Tensor]) -> list[Tensor]:
    """List those of `params` that, in some backward pass, one model used and another did not."""
    return [p for p in params if id(p) in _known] if _known else []


def users_of(grad: Tensor) -> Tensor:
    """Find the models that used the parameter of this gradient `[B, ...]`; bool `[B]`."""
    unused = (grad == 0).logical_and_(grad.signbit())
    return ~unused.reshape(grad.size(0), -1).all(1)


def changed_slots(slots: Sequence[int | None], B: int) -> list[int] | None:
    """List the slots that an edit of B models fills with new models; None if it has to make new tensors.

    Args:
        slots: slot that each model comes from; None for a new one.
    """
    if len(slots) != B:
        return None
    changed = [slot for slot, source in enumerate(slots) if source != slot]
    if any(slots[slot] in changed for slot in changed):
        return None  # a model would be read where another was written
    return changed


def has_rows(tensor: torch.Tensor) -> bool:
    """Return True if each element of a tensor has memory of its own, so that a row can be written alone."""
    return tensor.layout == torch.strided and all(
        stride > 0 or size < 2 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )


class SavedRows:
    """Copies of rows, to put them back after an error."""

    def __init__(self, tensors: Iterable[torch.Tensor], slots: Collection[int]) -> None:
        self._saved = [(tensor, slot, tensor[slot].clone()) for tensor in tensors for slot in slots]

    def put_back(self) -> None:
        """Give the rows the values that they had."""
        for tensor, slot, value in self._saved:
            tensor[slot].copy_(value)
