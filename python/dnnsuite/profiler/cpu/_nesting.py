# SPDX-License-Identifier: MIT
"""Events of a thread: their nesting, from their times, and the arguments of operators."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..._lazy import numpy as np


class Nesting(NamedTuple):
    """Places of events: index of the event around each (-1: none), its depth, and time that no inner event took."""

    parents: list[int]
    depths: list[int]
    self_ns: list[int]


def nest(threads: Sequence[int], t0_ns: Sequence[int], t1_ns: Sequence[int]) -> Nesting:
    """Nest the events of each thread; they may be in any order.

    An event is inside another one of its thread that began no later and has not ended when it begins. If events begin
    at the same time, the longer one is outside, then the one that comes first.
    """
    begins, ends = (np.asarray(each, np.int64) for each in (t0_ns, t1_ns))
    order = np.lexsort((-ends, begins, np.asarray(threads, np.int64))).tolist()
    parents, depths = [-1] * len(order), [0] * len(order)
    self_ns = [max(0, t1 - t0) for t0, t1 in zip(t0_ns, t1_ns, strict=True)]
    opened: list[int] = []  # of one thread
    thread = None
    for i in order:
        if threads[i] != thread:
            opened, thread = [], threads[i]
        while opened and t1_ns[opened[-1]] <= t0_ns[i]:
            opened.pop()
        if opened:
            outer = opened[-1]
            parents[i], depths[i] = outer, len(opened)
            self_ns[outer] -= min(t1_ns[i], t1_ns[outer]) - t0_ns[i]
        opened.append(i)
    return Nesting(parents, depths, [max(0, each) for each in self_ns])


class RecordedArguments(NamedTuple):
    """Arguments of one recorded event; shapes and strides are empty, and values None, where they do not apply.

    An operator that TorchScript's interpreter calls is recorded with the interpreter's whole stack: its own arguments
    are the last.
    """

    shapes: Sequence[Sequence[int]]  # of tensors
    values: Sequence[Any]  # of other arguments
    nested_shapes: Sequence[Any]  # shapes, and lists of shapes for lists of tensors
    nested_strides: Sequence[Any]  # in the same places
    dtypes: Sequence[str]  # names of C++ types

    @classmethod
    def of(cls, event: Any) -> RecordedArguments:
        """Take the arguments of an event of torch.profiler's."""
        shapes = event.shapes()
        count = argument_count(event.name(), getattr(event, "overload_name", str)())
        foreign = max(0, len(shapes) - count) if count is not None else 0
        others = (
            event.concrete_inputs(), event.structured_input_shapes(), event.structured_input_strides(), event.dtypes()
        )  # fmt: skip
        return cls(*(each[foreign:] for each in (shapes, *others)))


@functools.lru_cache(maxsize=4096)
def argument_count(name: str, overload: str = "") -> int | None:
    """Return the number of arguments of an overload of operator `name`, as `aten::mm`; None if there is none."""
    import torch

    namespace, _, operator = name.partition("::")
    found = getattr(getattr(torch.ops, namespace, None), operator, None) if operator else None
    schema = getattr(getattr(found, overload or "default", None), "_schema", None)
    return None if schema is None else len(schema.arguments)
