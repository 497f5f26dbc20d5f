# SPDX-License-Identifier: MIT
"""Timeline of torch's operators on CPUs, with the FLOPs and bytes of each. It gives way to a torch profiler that the
program starts: torch has one at a time, and the last to start gets it.
"""

from __future__ import annotations

import atexit
import functools
import os
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from math import prod
from typing import Any

from ..._C import exit_without_destructors
from ..._lazy import pandas as pd
from ...errors import Unavailable
from ...timing import now_ns
from .. import flops
from ..instrument import Instrument, define, replaced
from ._classes import RecordedArguments, class_of, inner_phase, nest, phase_of, replayed_phases

_WHAT = (("profile", "__init__"), ("profile", "__enter__"), ("emit_nvtx", "__enter__"), ("emit_itt", "__enter__"))


def told_of_recorders(tell: Callable[[], None]) -> ExitStack:
    """Call `tell` just before the program starts torch.profiler or torch.autograd.profiler, until the result is closed.

    torch.profiler makes a `torch.autograd.profiler.profile` for each of its cycles, at its beginning.
    """
    from torch.autograd import profiler

    def watched(before: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(before)
        def started(*args: Any, **kwargs: Any) -> Any:
            tell()
            return before(*args, **kwargs)

        return started

    with ExitStack() as undo:
        for kind, method in _WHAT:
            undo.enter_context(replaced(getattr(profiler, kind), method, watched))
        return undo.pop_all()


_COLUMNS = {
    "name": "operator, with its namespace, or what torch calls a step of its own",
    "class": "kind of work, by name: gemm, conv, attention, norm, elementwise, copy, view, ...",
    "phase": "backward, optimizer or data by what called it, else forward",
    "step": "number of the step within its window; -1 after the last",
    "thread": "torch's number of the thread",
    "depth": "how many events of its thread are around it",
    "t0_ns": "begin, CLOCK_MONOTONIC",
    "t1_ns": "end",
    "self_ns": "t1_ns - t0_ns without the events inside it",
    "shapes": "of its tensors",
    "dtype": "of its first tensor",
    "flops": "analytic, from its shapes; 0 for what has no formula and inside of what has one",
    "bytes": "of its inputs and outputs, each once; NaN where the outputs are not known",
    "counted": "whether it is the outermost operator with known bytes: these add up without overlap",
}
_BYTES = {
    "float": 4, "double": 8, "c10::BFloat16": 2, "c10::Half": 2, "long int": 8, "long": 8, "int": 4, "short": 2,
    "bool": 1, "unsigned char": 1, "signed char": 1, "c10::complex<float>": 8, "c10::complex<double>": 16,
}  # fmt: skip
# What is computed element by element: the output is like the largest input.
_SAME_SHAPE = ("elementwise", "norm", "softmax", "random")
# Of the classes that have others in them, what reads all its inputs: and writes as much, or next to nothing.
_WRITES_AS_MUCH = {"aten::cat", "aten::stack"}
_WRITES_LITTLE = {
    "aten::copy_", "aten::sum", "aten::mean", "aten::amax", "aten::argmax", "dnnsuite::gradient_norms",
}  # fmt: skip
# Operators that only call others: their work is inside.
_COMPOSITES = {"aten::layer_norm", "aten::batch_norm", "aten::group_norm", "aten::dropout", "aten::instance_norm",
               "aten::rms_norm", "aten::_batch_norm_impl_index", "aten::relu", "aten::norm", "aten::softmax",
               "aten::log_softmax", "aten::rand", "aten::randn", "aten::randint"}  # fmt: skip

Row = tuple[Any, ...]


class OpsInstrument(Instrument):
    """Recorder of operators in all threads, including replays of captured steps, by torch.profiler's CPU activity.

    The table `ops` has a row for each call. Recording costs the program 1 to 2 µs per call: see the overhead that a
    profile prints. FLOPs and bytes are computed, not counted. If the program starts a torch.profiler itself, that one
    records, and :attr:`gave_way` is True until the window has closed; those steps count as not observed.
    """

    name = "ops"

    def __init__(self) -> None:
        self._profiler: Any = None
        self._ends: list[tuple[int, int]] = []
        self._rows: list[Row] = []
        self._notes: dict[str, int] = {}
        self._offset_ns = 0
        self._owner = 0
        self.gave_way = False  # to a recorder of the program's, in the window that is open
        self._foreign = ExitStack()  # open while a recorder of the program would be noticed

    def open(self) -> None:
        """Acquire torch's profiler. Raises Unavailable while another one is recording."""
        from ..._torch import profiler_recording

        if profiler_recording():
            raise Unavailable(
                "torch.profiler already records in this process", "torch.autograd", "end it first: there is one"
            )

    def start(self) -> None:
        """Open a window. If a torch.profiler of the program is recording, it continues and this instrument records
        nothing."""
        import torch

        from ..._torch import all_threads_config, profiler_recording

        self.gave_way = False
        if profiler_recording():
            self._give_way()
            return
        config = all_threads_config()
        if config is None:
            self._note("ops: this torch records the operators of the calling thread only")
        os.environ.setdefault("KINETO_LOG_LEVEL", _QUIET)
        self._profiler = torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, experimental_config=config
        )
        self._ends = []
        self._owner = os.getpid()
        self._offset_ns = _wall_minus_monotonic_ns()
        self._profiler.start()
        _RECORDED.append(True)
        _recording.add(self)
        self._foreign = told_of_recorders(self._give_way)

    def _give_way(self) -> None:
        self.gave_way = True
        self._note(_GAVE_WAY)
        self._foreign.close()
        profiler = self._take_profiler()
        if profiler is not None:
            self._read(profiler)

    def step(self, index: int) -> None:
        self._ends.append((index, now_ns()))

    def stop(self) -> None:
        self._foreign.close()
        profiler = self._take_profiler()
        if profiler is not None:
            self._read(profiler)

    def _read(self, profiler: Any) -> None:
        """End the recorder and keep its events."""
        profiler.stop()
        drift_ns = abs(_wall_minus_monotonic_ns() - self._offset_ns)
        if drift_ns > 1_000_000:
            self._note(f"ops: the date was set or drifted by {drift_ns / 1e6:.1f} ms, times are off by as much")
        events = profiler.profiler.kineto_results.events()
        self._rows += self._rows_of([event for event in events if event.activity_type() in _KINDS])

    def _note(self, text: str) -> None:
        self._notes[text] = self._notes.get(text, 0) + 1

    def _rows_of(self, events: Sequence[Any]) -> list[Row]:
        threads = [event.start_thread_id() for event in events]
        t0 = [event.start_ns() - self._offset_ns for event in events]
        t1 = [begin + event.duration_ns() for begin, event in zip(t0, events, strict=True)]
        nested = nest(threads, t0, t1)
        phases = self._phases(events, t0, nested.parents)
        steps = _steps_of(t0, self._ends)
        recorded = [RecordedArguments.of(event) for event in events]
        works = [_work_of(event.name(), each) for event, each in zip(events, recorded, strict=True)]
        covered = _covered(nested.parents, [bytes_ is not None for _, bytes_ in works], t0)
        rows = []
        for i, event in enumerate(events):
            name = event.name()
            kind = class_of(name, event.activity_type() == _ANNOTATION)
            done, moved = works[i]
            counted = moved is not None and not covered[i]
            shapes = " ".join("x".join(map(str, shape)) for shape in recorded[i].shapes if shape)
            rows.append(
                (
                    name, kind, phases[i], steps[i], threads[i], nested.depths[i], t0[i], t1[i],
                    nested.self_ns[i], shapes, _dtype_of(recorded[i]), done if counted else 0,
                    float("nan") if moved is None else float(moved), counted,
                )
            )  # fmt: skip
        return rows

    def _phases(self, events: Sequence[Any], t0: list[int], parents: list[int]) -> list[str]:
        own = [phase_of(event.name()) for event in events]
        order = sorted(range(len(events)), key=lambda i: (t0[i], -events[i].duration_ns()))
        lanes: dict[int, list[int]] = {}
        for i in order:
            lanes.setdefault(events[i].start_thread_id(), []).append(i)
            if parents[i] >= 0:
                own[i] = inner_phase(own[parents[i]], own[i])
        for lane in lanes.values():
            filled = replayed_phases([events[i].name() for i in lane], [own[i] for i in lane])
            for i, phase in zip(lane, filled, strict=True):
                own[i] = phase
        return [phase or "forward" for phase in own]

    def tables(self) -> dict[str, pd.DataFrame]:
        table = pd.DataFrame(self._rows, columns=list(_COLUMNS))
        for column in ("name", "class", "phase", "shapes", "dtype"):
            table[column] = table[column].astype("category")
        return {"ops": define(table, _COLUMNS)}

    def notes(self) -> list[str]:
        found = list(self._notes)
        if self._rows:
            found.append("ops: no PMU is asked: FLOPs are analytic, from the operators' shapes, not counted")
        return found

    def close(self) -> None:
        self._foreign.close()
        profiler = self._take_profiler()
        if profiler is not None:
            profiler.stop()

    def _take_profiler(self) -> Any:
        """Take the active recorder; None without one, and in a forked child, which does not have its threads."""
        profiler, self._profiler = self._profiler, None
        _recording.discard(self)
        return profiler if self._owner == os.getpid() else None


_RECORDED: list[bool] = []  # whether torch's recorder has ever run in this process


def _spare_child() -> None:
    """Let a forked child that ends by `sys.exit` end: torch's recorder would wait in it for threads that it lacks."""
    if _RECORDED:
        exit_without_destructors()


os.register_at_fork(after_in_child=_spare_child)

_recording: weakref.WeakSet[OpsInstrument] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """End all recorders at exit, because torch crashes if the interpreter ends while it records. Recorded events stay
    readable."""
    for instrument in list(_recording):
        instrument.stop()


_ANNOTATION = "user_annotation"
_KINDS = ("cpu_op", _ANNOTATION)
_GAVE_WAY = (
    "ops: the program recorded with a torch.profiler of its own; torch has one at a time, so that the steps from its "
    "start to the end of the window are `foreign` in table steps, and in no figure here"
)
_QUIET = "6"  # torch's tracer would write two lines to stderr for each window


def _wall_minus_monotonic_ns() -> int:
    """Measure the difference of torch's clock (CLOCK_REALTIME) and CLOCK_MONOTONIC, ns; the least disturbed of several
    readings."""
    best, offset = 1 << 62, 0
    for _ in range(5):
        before, wall, after = now_ns(), time.time_ns(), now_ns()
        if after - before < best:
            best, offset = after - before, wall - (before + after) // 2
    return offset


def _steps_of(t0: list[int], ends: list[tuple[int, int]]) -> list[int]:
    """Find the step at each time: the first that ends after it."""
    import bisect

    times = [end for _, end in ends]
    places = [bisect.bisect_right(times, t) for t in t0]
    return [ends[place][0] if place < len(ends) else -1 for place in places]


def _covered(parents: list[int], known: list[bool], t0: list[int]) -> list[bool]:
    """Mark each event inside another event whose bytes are known."""
    covered = [False] * len(parents)
    for i in sorted(range(len(parents)), key=t0.__getitem__):
        parent = parents[i]
        while parent >= 0 and not covered[i]:
            covered[i] = known[parent]
            parent = parents[parent]
    return covered


def _work_of(name: str, arguments: RecordedArguments) -> tuple[int, int | None]:
    """Compute (FLOPs, bytes or None) of one event."""
    if "::" not in name or name in _COMPOSITES:
        return 0, None
    inputs = _input_bytes(arguments)
    done = flops.work(name, arguments.shapes, arguments.values) if flops.knows(name) else None
    if done is not None:
        size = _BYTES.get(_dtype_of(arguments), 4)
        return done.flops, sum(inputs) + size * sum(prod(shape) for shape in done.outputs)
    if not inputs:
        return 0, None
    if name == "dnnsuite::optimizer_step_" or name.startswith(("aten::_foreach_", "aten::_fused_")):
        return 0, 2 * sum(inputs)  # in place
    if class_of(name) in _SAME_SHAPE:
        return 0, sum(inputs) + max(inputs)
    if name in _WRITES_AS_MUCH:
        return 0, 2 * sum(inputs)
    return 0, sum(inputs) if name in _WRITES_LITTLE else None


def _input_bytes(arguments: RecordedArguments) -> list[int]:
    """List the bytes of each tensor among the arguments; a dimension of stride 0 counts once."""
    found = []
    strides = arguments.nested_strides
    for i, (shape, kind) in enumerate(zip(arguments.nested_shapes, arguments.dtypes, strict=False)):
        stride = strides[i] if i < len(strides) else []
        if kind in _BYTES:
            found.append(_BYTES[kind] * _elements(shape, stride))
        elif shape and isinstance(shape[0], (list, tuple)):  # a list of tensors, whose type is not told
            inner = stride if len(stride) == len(shape) else [[]] * len(shape)
            found.append(4 * sum(_elements(s, t) for s, t in zip(shape, inner, strict=True)))
    return found


def _elements(shape: Sequence[int], stride: Sequence[int]) -> int:
    if len(stride) != len(shape):
        return prod(shape)
    return prod(size for size, step in zip(shape, stride, strict=True) if step)


def _dtype_of(arguments: RecordedArguments) -> str:
    return next((kind for kind in arguments.dtypes if kind in _BYTES), "")
