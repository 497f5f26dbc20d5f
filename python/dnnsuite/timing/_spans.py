# SPDX-License-Identifier: MIT
"""Nested, named spans: time of each part of a step, in every thread, on the host's clock and on the GPU's."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from .. import _C
from .._lazy import numpy as np
from ..errors import Error, InvalidArgument
from ..host import register_vendor_folders

if TYPE_CHECKING:
    import numpy.typing as npt

Function = TypeVar("Function", bound=Callable[..., Any])


def decorated(scope: Any, function: Function) -> Function:
    """Wrap `function` in `with scope:`.

    Raises InvalidArgument for a coroutine or a generator, whose call returns before anything has run.
    """
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise InvalidArgument(f"{function.__qualname__} is a coroutine or a generator: use `with` inside it")

    @functools.wraps(function)
    def timed(*arguments: Any, **options: Any) -> Any:
        with scope:
            return function(*arguments, **options)

    return timed  # type: ignore[return-value]


class Span(_C.Span):
    """Named span of a :class:`Spans`, made once and used repeatedly, also inside itself.

    `with span:`, `@span`, or `span.begin()` and `span.end()`, which raises Error unless spans nest.
    """

    __slots__ = ()

    def __call__(self, function: Function) -> Function:
        """Wrap `function` so that each call is a span. Raises InvalidArgument for a coroutine or a generator."""
        return decorated(self, function)


class Spans:
    """Clock for nested, named parts of steps::

        spans = Spans(capacity=100_000)
        forward, backward = spans.span("forward"), spans.span("backward")
        for spans.step in range(steps):
            with forward: ...
            with backward: ...
        spans.columns()

    Memory for `capacity` spans is set aside beforehand, 40 bytes each; those that follow when it is used up are counted
    in `dropped`, and `notes` says so. Threads may begin and end spans at the same time; a span ends in the thread in
    which it began. A forked child starts with no spans, and those that were open are its parent's alone.

    Args:
        nvtx: each span is an NVTX range of the domain `dnnsuite` too, with the step as its payload.
        cuda_pairs: also time each span on the GPU, with a pool of this number of pairs of CUDA events, which are
            resolved when they are over: nothing waits for the device before `columns`. Not run on a GPU yet.

    Raises:
        InvalidArgument: a negative capacity.
        Unavailable: `nvtx` in a build without NVTX's headers; `cuda_pairs` without a driver, a device or libcudart.

    >>> from dnnsuite import timing
    >>> spans = timing.Spans()
    >>> with spans.span("forward"):
    ...     pass
    >>> len(spans.columns()["name"])
    1
    """

    def __init__(self, capacity: int = 65_536, *, nvtx: bool = False, cuda_pairs: int = 0) -> None:
        register_vendor_folders()
        self._spans = _C.Spans(capacity)
        self._events = _C.CudaEvents(cuda_pairs) if cuda_pairs else None
        self._gpu_ns: dict[int, int] = {}
        self._nvtx = nvtx
        self._known: dict[str, Span] = {}

    def span(self, name: str) -> Span:
        """Return the span of this name; the same object each time. Not for the hot path."""
        if name not in self._known:
            made: Span = _C.make_span(Span, self._spans, name, self._events, self._nvtx)
            self._known[name] = made
        return self._known[name]

    @property
    def step(self) -> int:
        """Step number of spans from now on, in every thread."""
        return self._spans.step

    @step.setter
    def step(self, step: int) -> None:
        self._spans.step = step
        if self._events is not None:
            self._events.collect()

    def set_stream(self, stream: int) -> None:
        """Record CUDA events in this stream (`torch.cuda.current_stream().cuda_stream`) from now on."""
        if self._events is not None:
            self._events.set_stream(stream)

    @property
    def capacity(self) -> int:
        """Number of spans that fit in memory."""
        return self._spans.capacity

    @property
    def dropped(self) -> int:
        """Number of spans dropped because memory was full, or nested deeper than 64."""
        return self._spans.dropped

    @property
    def open(self) -> int:
        """Number of spans begun and not ended."""
        return self._spans.open

    def __len__(self) -> int:
        return self._spans.count

    def __repr__(self) -> str:
        return f"Spans(capacity={self.capacity}, count={len(self)}, open={self.open}, dropped={self.dropped})"

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the ended spans, in the order of their begin, as arrays [n].

        `name` (of str), `step`, `depth` (0: no span of the thread around it), `thread` (the kernel's id), `t0_ns` and
        `t1_ns` on :func:`now_ns`; with CUDA events also `gpu_ns`, from the begin to the end on the device, NaN where
        there was none. Waits for the device then.
        """
        columns: dict[str, npt.NDArray[Any]] = self._spans.columns()
        slots = columns.pop("slot")
        columns["name"] = np.array(self._spans.names(), dtype=object)[columns["name"]]
        if self._events is not None:
            self._events.finish()
            self._gpu_ns.update(self._events.take())
            columns["gpu_ns"] = np.array([self._gpu_ns.get(slot, np.nan) for slot in slots.tolist()])
        return columns

    def clear(self) -> None:
        """Forget all spans; names and memory stay. Raises Error while one is open."""
        self._spans.clear()
        if self._events is not None:  # or a late event would be taken for one of the spans that follow
            self._events.finish()
            self._events.take()
        self._gpu_ns.clear()

    def notes(self) -> list[str]:
        """Remarks for a reader of the spans: dropped ones, and open ones."""
        notes = []
        if self.dropped:
            notes.append(f"{self.dropped} spans were dropped: there was room for {self.capacity}")
        if self.open:
            notes.append(f"{self.open} spans are open and not among the results")
        if self._events is not None and self._events.dropped:
            error = f", CUDA's last refusal was {self._events.last_error}" if self._events.last_error else ""
            notes.append(f"{self._events.dropped} spans have no GPU time: the pool of events was empty{error}")
        return notes


class Contention:
    """Probe of the machine before and after each block: ``with watch: run_block()``.

    The clock rate is that of a chain of dependent additions, a cycle each, in the calling thread (about 30 us): a core
    that is throttled, or shared with another process, adds more slowly. The better of a block's two readings counts,
    because one may be interrupted. The kernel adds involuntary context switches, the time that the hypervisor stole,
    and the pressure on the CPUs (PSI).

    A block is `throttled` when its clock is below `clock_share` of the best of all blocks (nvbench's 75 %), and
    `contended` when stolen time or pressure exceeds `busy_share` of its duration, or it was switched out more than
    `switches_per_s` times a second. Flags are settled when they are read, as the best clock may be seen last.
    """

    def __init__(self, *, clock_share: float = 0.75, busy_share: float = 0.05, switches_per_s: float = 100.0) -> None:
        self.clock_share, self.busy_share, self.switches_per_s = clock_share, busy_share, switches_per_s
        self._rows: list[tuple[float, ...]] = []
        self._before: tuple[float, _C.Disturbances] | None = None

    def __enter__(self) -> Contention:
        if self._before is not None:
            raise Error("a block has begun already: Contention does not nest")
        clock_ghz = _clock_ghz()
        self._before = (clock_ghz, _C.read_disturbances())
        return self

    def __exit__(self, *_: object) -> None:
        after = _C.read_disturbances()  # before the probe, which is no part of the block
        clock_ghz = _clock_ghz()
        assert self._before is not None
        (earlier_ghz, before), self._before = self._before, None
        self._rows.append(
            (
                before.t_ns,
                after.t_ns,
                max(earlier_ghz, clock_ghz),
                after.involuntary_switches - before.involuntary_switches,
                after.steal_s - before.steal_s,
                after.pressure_s - before.pressure_s,
            )
        )

    def __repr__(self) -> str:
        return f"Contention({len(self)} blocks)"

    def __len__(self) -> int:
        return len(self._rows)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return arrays with one entry for each block [n]: t0_ns, t1_ns, clock_ghz, involuntary_switches, throttled,
        contended, and steal_s and pressure_s, NaN if the kernel does not report them."""
        t0, t1, ghz, switches, steal, pressure = np.array(self._rows, dtype=np.float64).reshape(-1, 6).T
        times = np.array([row[:2] for row in self._rows], dtype=np.int64).reshape(-1, 2)
        seconds = np.maximum(t1 - t0, 1) * 1e-9
        busy = np.nan_to_num(np.fmax(steal, pressure)) > self.busy_share * seconds
        best = ghz.max(initial=0.0)
        return {
            "t0_ns": times[:, 0],
            "t1_ns": times[:, 1],
            "clock_ghz": ghz,
            "involuntary_switches": switches.astype(np.int64),
            "steal_s": steal,
            "pressure_s": pressure,
            "throttled": ghz < self.clock_share * best,
            "contended": busy | (switches > self.switches_per_s * seconds),
        }

    def notes(self) -> list[str]:
        """Remarks for a reader of the blocks: the number disturbed, and by what."""
        columns = self.columns()
        notes = []
        if throttled := int(columns["throttled"].sum()):
            low, best = columns["clock_ghz"].min(), columns["clock_ghz"].max()
            notes.append(
                f"{throttled} of {len(self)} blocks were throttled: the clock was down to {low:.2f} of {best:.2f} GHz"
            )
        if contended := int(columns["contended"].sum()):
            switches = columns["involuntary_switches"].sum()
            steal = sum(seconds for seconds in columns["steal_s"] if not math.isnan(seconds))
            notes.append(
                f"{contended} of {len(self)} blocks were contended: "
                f"{switches} involuntary switches, {steal:.3g} s stolen"
            )
        return notes


def _clock_ghz() -> float:
    """Measure the clock rate: the best of three short chains, as an interrupt hits at most one."""
    least_ns = min(_C.addition_ns(40_000) for _ in range(3))
    return 1 / least_ns if least_ns > 0 else math.nan
