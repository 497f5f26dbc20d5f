# SPDX-License-Identifier: MIT
"""Events of torch.profiler's traces as rows of whole numbers, by kind."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..profiler.activity import tables
from ..profiler.cpu import class_of

_KIND_OF = {
    "kernel": "kernels",
    **dict.fromkeys(("gpu_memcpy", "gpu_memset", "memcpy", "memset"), "memops"),
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "runtime", "hip_runtime", "hip_driver", "xpu_runtime"), "api"),
    **dict.fromkeys(("user_annotation", "python_annotation"), "markers"),
    **dict.fromkeys(("cpu_op", "operator"), "ops"),
    "overhead": "overhead",
    **{"ops": "ops", "phases": "markers", "steps": "steps"},  # of our own traces
}
_STEP = re.compile(r"ProfilerStep\s*#\s*(\d+)$")
_OWN_STEP = re.compile(r"step (\d+)$")
_OPERATIONS = {"HtoD": 1, "DtoH": 2, "HtoA": 3, "AtoH": 4, "AtoA": 5, "AtoD": 6, "DtoA": 7, "DtoD": 8, "HtoH": 9,
               "PtoP": 10}  # fmt: skip
_MEMORIES = {"Pageable": 1, "Pinned": 2, "Device": 3, "Array": 4, "Managed": 5}
_WORK_IN_ANNOTATIONS = ("communication", "compiled")
_DEVICE = 3
_LARGEST = 2**63 - 1
_DECADE_NS = 3 * 10**17
COLUMNS = tables.COLUMNS | {
    **dict.fromkeys(("markers", "ops"), ("t0_ns", "t1_ns", "name", "thread")),
    "steps": ("t0_ns", "t1_ns", "step", "thread"),
}

Event = Mapping[str, Any]


class Rows(Protocol):
    """A place for rows of one kind, one number after another."""

    def extend(self, row: Iterable[int], /) -> None:
        """Add a row."""


class TraceRows:
    """The rows of a trace, filled event by event, and the texts that they name by number.

    Args:
        rows: destination of each kind of `COLUMNS`; by default memory.
    """

    def __init__(self, rows: Mapping[str, Rows] | None = None) -> None:
        self.strings: list[str] = []
        self.untimed: Counter[str] = Counter()  # rows that were left out because their times could not be taken
        self._held = {} if rows is not None else {kind: array("q") for kind in COLUMNS}
        self._rows: Mapping[str, Rows] = self._held if rows is None else rows
        self._codes: dict[str, int] = {}
        self._kinds: dict[str, str | None] = {}

    def add(self, event: Event) -> None:
        """Add an event; a kind that no table has is skipped."""
        category = str(event.get("cat", ""))
        if category not in self._kinds:
            self._kinds[category] = _KIND_OF.get(category.lower())
        kind = self._kinds[category]
        if kind is None:
            return
        t0_ns = _ns(event.get("ts"))
        t1_ns = t0_ns + max(_ns(event.get("dur", 0)), 0)
        name = str(event.get("name", ""))
        pattern = _OWN_STEP if kind == "steps" else _STEP
        if kind in ("markers", "ops", "steps") and (step := pattern.match(name)):
            self._rows["steps"].extend((t0_ns, t1_ns, _whole(step[1]), _whole(event.get("tid"))))
            if kind == "ops":
                return
        if kind == "steps":
            return
        if kind in ("kernels", "memops") and _is_untimed(t0_ns, t1_ns):
            self.untimed[kind] += 1
            return
        self._rows[kind].extend((t0_ns, t1_ns, *_READERS[kind](event, self._code(name))))
        if kind == "markers" and class_of(name, annotation=True) in _WORK_IN_ANNOTATIONS:
            self._rows["ops"].extend((t0_ns, t1_ns, *_READERS["ops"](event, self._code(name))))

    @property
    def foreign(self) -> list[str]:
        """Categories of the events, where no table has any of them; else none."""
        return [] if any(self._kinds.values()) else sorted(self._kinds)

    def columns(self) -> dict[str, dict[str, NDArray[Any]]]:
        """Return the columns of each kind, of rows that are in memory."""
        none = np.zeros(0, np.int64)
        return {
            kind: columns_of(kind, np.frombuffer(held, np.int64) if held else none) for kind, held in self._held.items()
        }

    def _code(self, text: str) -> int:
        code = self._codes.setdefault(text, len(self.strings))
        if code == len(self.strings):
            self.strings.append(text)
        return code


def columns_of(kind: str, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Return the columns `[N]` of rows that lie one after another."""
    names = COLUMNS[kind]
    table = rows.reshape(-1, len(names))
    return {name: np.ascontiguousarray(table[:, number]) for number, name in enumerate(names)}


def _ns(value: Any) -> int:
    """Return microseconds as ns, exactly: since 1970 they have more digits than a double holds."""
    try:
        exact = Decimal(value)
        if abs(exact) <= _LARGEST // 2000:
            return round(exact * 1000)
    except ArithmeticError:  # no number, or none that can be compared
        pass
    raise ValueError(f"time {value!r} us")


def _is_untimed(t0_ns: int, t1_ns: int) -> bool:
    """True for work whose times could not be taken: CUPTI writes 0 for both, and torch takes its base from that."""
    return t0_ns == t1_ns and (t0_ns == 0 or t0_ns < -_DECADE_NS)


def _whole(value: Any) -> int:
    """Return a whole number; 0 for what is none, as the name of a thread."""
    try:
        found = int(value)
    except (TypeError, ValueError, OverflowError):
        return 0
    return found if abs(found) <= _LARGEST else 0


def _args(event: Event) -> Mapping[str, Any]:
    args = event.get("args") or {}
    if not isinstance(args, dict):
        raise TypeError(f"args {args!r}")
    return args


def _numbers(args: Mapping[str, Any], names: Sequence[str]) -> tuple[int, ...]:
    return tuple(_whole(args.get(name)) for name in names)


def _kernel(event: Event, name: int) -> tuple[int, ...]:
    args = _args(event)
    axes = [side for each in ("grid", "block", "cluster") for side in _axes(args.get(each))]
    shared = _numbers(args, ("registers per thread", "shared memory"))
    return (name, *_numbers(args, tables.WORK), *axes, *shared, 0, 0, *_numbers(args, ("graph id", "graph node id")))


def _axes(sides: Any) -> tuple[int, int, int]:
    known = sides if isinstance(sides, list) else []
    x, y, z = (_whole(known[number]) if len(known) > number else 0 for number in range(3))
    return x, y, z


def _memop(event: Event, _: int) -> tuple[int, ...]:
    args, text = _args(event), str(event.get("name", ""))
    is_set = "memset" in str(event["cat"]).lower()
    operation = tables.MEMSET if is_set else next((number for word, number in _OPERATIONS.items() if word in text), 0)
    device = _whole(args.get("device"))
    sides = (_memory(text, side, is_set) for side in (0, 1))
    graph = _numbers(args, ("graph id", "graph node id"))
    return (operation, *sides, _whole(args.get("bytes")), *_numbers(args, tables.WORK), device, device, *graph)


def _memory(text: str, side: int, is_set: bool) -> int:
    """Kind of memory that a copy reads (0) or writes (1), from names as `Memcpy HtoD (Pinned -> Device)`."""
    inside = text.partition("(")[2].rstrip(")").split(" -> ")
    if len(inside) < 2:
        return _DEVICE if side and is_set else 0
    return _MEMORIES.get(inside[side].strip(), 0)


def _call(event: Event, name: int) -> tuple[int, ...]:
    args = _args(event)
    is_runtime = "runtime" in str(event["cat"]).lower()
    return (int(is_runtime), name, _whole(event.get("tid")), *_numbers(args, ("correlation", "return value")))


def _overhead(event: Event, _: int) -> tuple[int, ...]:
    return 0, _whole(event.get("tid")), _whole(_args(event).get("correlation"))


def _named(event: Event, name: int) -> tuple[int, ...]:
    return name, _whole(event.get("tid"))


_READERS: dict[str, Callable[[Event, int], tuple[int, ...]]] = {
    "kernels": _kernel, "memops": _memop, "api": _call, "overhead": _overhead, "markers": _named, "ops": _named,
}  # fmt: skip
