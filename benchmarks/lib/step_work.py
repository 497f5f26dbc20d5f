# SPDX-License-Identifier: MIT
"""Operations and bytes of each operator of a step, seen as torch dispatches them.

FLOPs are those of `dnnsuite.profiler.flops`: products, convolutions, attention and recurrences; all else has its bytes
alone. Bytes: each tensor that an operator reads, and each that it writes, once; a view moves none, and an expanded
tensor has those of its storage. So the sum over a step is of the operators as they are: one that does the work of
several in one pass over memory can need less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from work import Work

from dnnsuite.profiler import flops

_EMPTY = ("aten::empty", "aten::new_empty", "aten::_unsafe_view", "aten::lift_fresh")
_WRITES_FIRST = (
    "aten::zero_", "aten::fill_", "aten::copy_", "aten::bernoulli_", "aten::uniform_", "aten::normal_",
    "aten::random_", "dnnsuite::batch_norm_act_running_", "dnnsuite::batch_norm_act_counted_",
)  # fmt: skip
_OF_ONE_STEP = "dnnsuite::recurrence_step"
_READS_WHAT_IT_WRITES = ("aten::embedding", "aten::index_select", "aten::gather", "aten::index")


class Operation(NamedTuple):
    """One call of an operator; `dtype` is that of its first tensor."""

    name: str
    work: Work
    dtype: torch.dtype


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Operation] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        every = [*args, *kwargs.values()]
        tensors = _tensors(every) or _tensors(out)
        if tensors and not _is_view(func):
            name = func._schema.name
            work = Work(_flops(name, every), _bytes(func, name, every, out))
            self.seen.append(Operation(name, work, tensors[0].dtype))
        return out


def operations(step: Callable[[], object]) -> list[Operation]:
    """All operators that `step` calls in this thread and in its backward pass, in their order."""
    recorder = _Recorder()
    with recorder:
        step()
    return recorder.seen


def _tensors(values: Any) -> list[torch.Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


def _is_view(func: Any) -> bool:
    returned = func._schema.returns
    return any(each.alias_info is not None and not each.alias_info.is_write for each in returned)


def _flops(name: str, every: list[Any]) -> int:
    tensors = [isinstance(value, torch.Tensor) for value in every]
    shapes = [tuple(value.shape) if is_one else () for value, is_one in zip(every, tensors, strict=True)]
    values = [None if is_one else value for value, is_one in zip(every, tensors, strict=True)]
    counted = flops.work(name, shapes, values)
    return counted.flops if counted else 0


def _bytes(func: Any, name: str, every: list[Any], out: Any) -> int:
    if name.startswith(_EMPTY):
        return 0
    written = list(_mutated(func, every))
    if not written:
        written = _tensors(out)
    if name in _READS_WHAT_IT_WRITES:
        read = [*written, *_tensors(every[1:])]
    else:
        read = _tensors(every[1:] if name in _WRITES_FIRST else every)
    if name.startswith(_OF_ONE_STEP):  # the arrays of all time steps come whole, one step's share of them is used
        return sum(_size(t) // (t.shape[1] if t.dim() == 4 else 1) for t in (*read, *written))
    return sum(map(_size, read)) + sum(map(_size, written))


def _mutated(func: Any, every: list[Any]) -> Iterator[torch.Tensor]:
    for argument, value in zip(func._schema.arguments, every, strict=False):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from _tensors(value)


def _size(tensor: torch.Tensor) -> int:
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())
