# SPDX-License-Identifier: MIT
"""`profiler.profile`: instruments over the windows of a loop, and their results as tables. One runs at a time."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .._lazy import pandas as pd
from ..errors import InvalidArgument, Unavailable
from ._windows import LoopStep, Overhead, Phase, Schedule, Windows, overhead
from .data import derived, read, within
from .instrument import Absent, Instrument, choose, open_all

if TYPE_CHECKING:
    from ._advice import Advice
    from .phases import OptimizerSeen


_lock = threading.Lock()
_at_work: tuple[str, Callable[[], None]] | None = None  # who observes, and what ends it; one at a time


def _acquire(holder: str, close: Callable[[], None]) -> None:
    """Take the process for the profiler that `holder` describes; `close` ends it if the process ends first.

    Raises:
        Unavailable: another profiler of this library, or torch's, is at work; the message names it.
    """
    global _at_work
    with _lock:
        if _at_work is not None:
            raise Unavailable(
                f"a profiler is at work already: {_at_work[0]}",
                remedy="close that one first; one profiler takes several metrics, e.g. metrics='all'",
            )
        _refuse_foreign()
        _at_work = holder, close


def _release() -> None:
    global _at_work
    with _lock:
        _at_work = None


@atexit.register
def _close_left_open() -> None:
    if _at_work is not None:
        holder, close = _at_work
        print(f"dnnsuite: the profiler of {holder} was left open; it is closed now", file=sys.stderr)
        close()


def _forget_parent() -> None:
    """Let go in a forked child: the instruments are the parent's, and the child may profile itself."""
    global _at_work, _lock
    _lock, _at_work = threading.Lock(), None  # another thread of the parent may have held the lock


os.register_at_fork(after_in_child=_forget_parent)


def _refuse_foreign() -> None:
    if "torch" not in sys.modules:
        return
    from .._torch import profiler_recording

    if profiler_recording():
        raise Unavailable(
            "torch.profiler (or torch.autograd.profiler) is recording in this process",
            remedy="leave its `with` block first: two recorders would measure each other",
        )


class Profile:
    """Observe a training loop: put `with profile(...) as p:` around it, and call `p.step()` after each step.

    Observations are complete after the `with` block; within it they end with the current window. Tables are attributes:
    `p.steps`, `p.phases`, `p.ops`. Times are nanoseconds of CLOCK_MONOTONIC; the definition of each column is in
    `table.attrs["definitions"]`.

    Args:
        metrics: `timeline`, `cores`, `fp32`, `memory`, `power` or `all`; several as a list or joined by `|`. If a
            metric is not available on this machine, `instruments` has a row with the reason.
        schedule: steps to observe, from :func:`schedule`; all by default.
        instruments: further instruments, as names or objects; an unavailable one is an error.
        on_ready: function that is called with the profile each time a window closes, for example `lambda p:
            p.save("out")`.
        synchronize: function that waits until all submitted steps are done, if `step` returns earlier; not needed on a
            GPU.
        device: device of the loop, `cpu` or `cuda`; by default cuda once the process has used CUDA.
        about: properties of the job for the record: batch size, precision, items per step.

    Raises:
        Unavailable: another profiler is active, for example torch's, or an instrument that was requested by name is
            unavailable.
        InvalidArgument: a metric or instrument is unknown.
    """

    def __init__(
        self,
        metrics: str | Sequence[str] = "timeline",
        *,
        schedule: Schedule | None = None,
        instruments: Iterable[str | Instrument] = (),
        on_ready: Callable[[Profile], object] | None = None,
        synchronize: Callable[[], object] | None = None,
        device: str | None = None,
        about: dict[str, Any] | None = None,
    ) -> None:
        torch = sys.modules.get("torch")
        used = "cuda" if torch is not None and torch.cuda.is_initialized() else "cpu"
        self.schedule, self.about = schedule, about or {}
        self.first = 0  # number of the first step, in a loop of which some have ended
        self.metrics = metrics
        self.tables: dict[str, pd.DataFrame] = {}
        self.notes: list[str] = []
        self.absent: list[Absent] = []
        self._makers, self._asked = choose(metrics, instruments, (device or used).split(":")[0])
        self._on_ready, self._synchronize = on_ready, synchronize
        self._windows: Windows | None = None
        self._owner = self._thread = 0
        self._open = False

    def __enter__(self) -> Profile:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
            return
        with suppress(Exception):  # what the loop raised is what matters
            self.stop(f"{kind.__name__ if kind else 'an exception'} ended the loop")

    def start(self) -> None:
        """Open the instruments and begin the first step. `with` calls it.

        Raises:
            InvalidArgument: the profile was started before.
            Unavailable: another profiler is active.
        """
        if self._windows is not None:
            raise InvalidArgument("a profile observes one loop; make another one for the next")
        _acquire(f"{_caller()} (process {os.getpid()})", self._close_at_exit)
        try:
            opened, self.absent = open_all(self._makers, self._asked)
            self._windows = Windows(
                opened, self.schedule or (lambda step: Phase.ACTIVE), self._window_closed, self._synchronize, self.first
            )
            self._owner, self._thread, self._open = os.getpid(), threading.get_native_id(), True
            self._windows.begin()
        except BaseException:
            self._release()
            raise

    def step(self) -> None:
        """End a step of the loop. Does nothing in a forked child of the process that started the profile."""
        if self._open and self._owner == os.getpid():
            self._driver.step()

    def stop(self, why: str | None = None) -> None:
        """End the loop and close the instruments. `with` calls it at the end; it may be called more than once."""
        if not self._open or self._owner != os.getpid():
            return
        windows = self._driver
        try:
            if self.schedule is None and windows.index == self.first:
                windows.note_rest()
            windows.cut_short(why or ("" if self.schedule is None else "the loop ended inside it"))
            self._gather()
        finally:
            self._release()
        if self.schedule is None and why is None and self._on_ready is not None:
            self._on_ready(self)

    @property
    def _driver(self) -> Windows:
        if self._windows is None:
            raise InvalidArgument("the profile was not started: use it as `with profile(...) as p:`")
        return self._windows

    @property
    def done(self) -> bool:
        """True once the last window of the schedule has closed."""
        end = self.schedule.steps if self.schedule else None
        return end is not None and self._windows is not None and self._windows.index >= end

    @property
    def instruments(self) -> pd.DataFrame:
        """Table of the instruments: the state of each, and the reason and the remedy if it is unavailable."""
        rows = [(each.name, "ok", "") for each in (self._windows.instruments if self._windows else [])]
        rows += [(each.name, f"unavailable: {each.why}", each.remedy) for each in self.absent]
        return pd.DataFrame(rows, columns=["instrument", "state", "remedy"])

    @property
    def overhead(self) -> Overhead | None:
        """Cost of the instruments per step; None if every step ran with them."""
        return overhead(self._driver.steps, self._loops_own_warmup())

    @property
    def ran(self) -> int:
        """Number of steps of the loop, observed or not."""
        return self._driver.index

    @property
    def active(self) -> list[LoopStep]:
        """The observed steps."""
        return self._driver.active

    @property
    def quiet(self) -> list[LoopStep]:
        """Steps without instruments, after the loop's own warm-up. Use them to compute a rate."""
        skip = self._loops_own_warmup()
        return [step for step in self._driver.steps if step.phase == Phase.OFF.value and step.step >= skip]

    def _loops_own_warmup(self) -> int:
        return self.schedule.skip_first // 2 if self.schedule else 0

    @property
    def loader_workers(self) -> int | None:
        """`num_workers` of the DataLoader that the loop waited for; None if there was none."""
        return self._seen("loader_workers")

    @property
    def optimizer(self) -> OptimizerSeen | None:
        """The optimizer that stepped last; None if none from torch.optim did."""
        return self._seen("optimizer")

    def _seen(self, name: str) -> Any:
        found = (getattr(each, name, None) for each in self._driver.instruments)
        return next((seen for seen in found if seen is not None), None)

    @property
    def wall_ns(self) -> int:
        """Wall time of the observed steps, ns."""
        return sum(step.t1_ns - step.t0_ns for step in self.active)

    @property
    def breakdown(self) -> pd.DataFrame:
        """Time of the observed steps by class: data wait, host, work, communication, idle."""
        return self.__getattr__("breakdown")

    @property
    def advice(self) -> list[Advice]:
        """Advice on what to do next, with the rule behind each piece."""
        from .summary import advice

        return advice(self)

    def __getattr__(self, name: str) -> pd.DataFrame:
        if name.startswith("_") or name not in self.__dict__.get("tables", {}):
            known = ", ".join(self.__dict__.get("tables", {}))
            raise AttributeError(f"no attribute or table {name!r}; the tables are {known}")
        return self.tables[name]

    def __repr__(self) -> str:
        return f"Profile(tables: {', '.join(self.__dict__.get('tables', {})) or 'none yet'})"

    def _repr_html_(self) -> str:
        return self.breakdown._repr_html_() if "breakdown" in self.tables else ""  # type: ignore[operator]

    def summary(self) -> str:
        """Return the profile as a page of text: rate, breakdown, operators, overhead and what to do next."""
        from .summary import summary

        return summary(self)

    def record(self) -> dict[str, Any]:
        """Return everything except the tables, as written to `profile.json`."""
        from .summary import record

        return record(self)

    def save(self, directory: str | os.PathLike[str], figures: bool = True) -> list[Path]:
        """Write a CSV file per table, their definitions, the trace, the figures and the summary. Returns the files."""
        from .trace import save

        return save(self, Path(directory), figures)

    def _window_closed(self) -> None:
        self._gather()
        if self._on_ready is not None:
            self._on_ready(self)

    def _gather(self) -> None:
        """Read the instruments' tables, keep what belongs to observed steps, derive the breakdown."""
        windows = self._driver
        found, self.notes = read(windows.instruments)
        if windows.cut:
            self.notes.append(f"the last window was cut short: {windows.cut}")
        spans = [(step.t0_ns, step.t1_ns) for step in windows.active]
        self.tables = {"steps": windows.table(), **{name: within(table, spans) for name, table in found.items()}}
        if spans:
            self.tables |= derived(windows.active, self.tables, self._thread)

    def _release(self) -> None:
        self._open = False
        _release()
        if self._windows is not None:
            self._windows.close()

    def _close_at_exit(self) -> None:
        with suppress(Exception):
            self.stop("the process ended")


profile = Profile


def _caller() -> str:
    """Find file:line of the user's code that called."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(__package__ or "dnnsuite"):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
