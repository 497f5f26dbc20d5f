# SPDX-License-Identifier: MIT
"""Events of a thread: their nesting, from their times, and the arguments of operators."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple


class Nested(NamedTuple):
    """Place of an event: index of the event around it (-1: none), depth, and time that no inner event took."""

    parent: int
    depth: int
    self_ns: int


def nest(threads: Sequence[int], t0_ns: Sequence[int], t1_ns: Sequence[int]) -> list[Nested]:
    """Nest the events of each thread, in the order given.

    An event is inside another of its thread that began no later and has not ended when it begins. Of events that
    begin together the longer is outside, then the earlier in order.
    """
    order = sorted(range(len(threads)), key=lambda i: (threads[i], t0_ns[i], -t1_ns[i], i))
    parents, depths = [-1] * len(order), [0] * len(order)
    inner_ns = [0] * len(order)
    open_events: list[int] = []
    for i in order:
        while open_events and (threads[open_events[-1]] != threads[i] or t1_ns[open_events[-1]] <= t0_ns[i]):
            open_events.pop()
        if open_events:
            parent = open_events[-1]
            parents[i], depths[i] = parent, len(open_events)
            inner_ns[parent] += min(t1_ns[i], t1_ns[parent]) - t0_ns[i]
        open_events.append(i)
    return [Nested(parents[i], depths[i], max(0, t1_ns[i] - t0_ns[i] - inner_ns[i])) for i in range(len(order))]


def innermost(times_ns: Sequence[int], spans: Sequence[tuple[int, int, str]]) -> list[str | None]:
    """Find the name of the innermost span (t0, t1, name) of the process around each of `times_ns`.

    By time, not by thread: autograd and step runners work in other threads.
    """
    starts = sorted(range(len(spans)), key=lambda i: (spans[i][0], -spans[i][1]))
    found: list[str | None] = [None] * len(times_ns)
    open_spans: list[int] = []
    upcoming = 0
    for i in sorted(range(len(times_ns)), key=times_ns.__getitem__):
        t = times_ns[i]
        while upcoming < len(starts) and spans[starts[upcoming]][0] <= t:
            open_spans.append(starts[upcoming])
            upcoming += 1
        open_spans = [j for j in open_spans if spans[j][1] > t]
        if open_spans:
            found[i] = spans[max(open_spans, key=lambda j: (spans[j][0], -spans[j][1]))][2]
    return found


class RecordedArguments:
    """Arguments of one recorded event.

    An operator that TorchScript's interpreter calls, as in the replay of a step, is recorded with the interpreter's
    whole stack: its own arguments are the last.
    """

    def __init__(self, event: Any) -> None:
        self._event = event
        count = argument_count(event.name(), getattr(event, "overload_name", str)())
        self._foreign = max(0, len(event.shapes()) - count) if count is not None else 0

    @property
    def shapes(self) -> Sequence[Sequence[int]]:
        """Shapes of the tensors; empty for other arguments."""
        return self._own(self._event.shapes())

    @property
    def values(self) -> Sequence[Any]:
        """Values of the other arguments; None for a tensor."""
        return self._own(self._event.concrete_inputs())

    @property
    def nested_shapes(self) -> Sequence[Any]:
        """Shapes, and lists of shapes for lists of tensors."""
        return self._own(self._event.structured_input_shapes())

    @property
    def nested_strides(self) -> Sequence[Any]:
        """Strides in the places of `nested_shapes`."""
        return self._own(self._event.structured_input_strides())

    @property
    def dtypes(self) -> Sequence[str]:
        """Names of C++ types."""
        return self._own(self._event.dtypes())

    def _own(self, recorded: Sequence[Any]) -> Sequence[Any]:
        return recorded[self._foreign :]


@functools.lru_cache(maxsize=4096)
def argument_count(name: str, overload: str = "") -> int | None:
    """Return the number of arguments of an overload of operator `name`, as `aten::mm`; None if there is none."""
    import torch

    namespace, _, operator = name.partition("::")
    found = getattr(getattr(torch.ops, namespace, None), operator, None) if operator else None
    schema = getattr(getattr(found, overload or "default", None), "_schema", None)
    return None if schema is None else len(schema.arguments)
