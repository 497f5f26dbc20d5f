# SPDX-License-Identifier: MIT
"""Instruments: the interface between one and the profiler that drives it, definitions of its tables' columns, and the
choice of instruments by name and by metrics, with reasons for those unavailable.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

from .._lazy import pandas as pd
from ..errors import Error, InvalidArgument, Unavailable, did_you_mean, some_of


@runtime_checkable
class Instrument(Protocol):
    """Source of measurements. It is opened once, started and stopped once for each window, and closed once.

    Times are int64 nanoseconds of CLOCK_MONOTONIC (:func:`dnnsuite.timing.now_ns`), in columns `t0_ns` and `t1_ns`.
    """

    name: str
    """Name by which users request it: "activity", "counters", "nvml", "cpu", "spans", "memory", ..."""

    def open(self) -> None:
        """Acquire the resources of the instrument.

        Raises:
            Unavailable: something is missing. The message names it, the places that were searched and a remedy; no
                resource is held afterwards.
        """

    def start(self) -> None:
        """Open a window. It may be called again after :meth:`stop`."""

    def step(self, index: int) -> None:
        """End step `index` of the window, counted from 0. Instruments whose records contain their time do nothing."""
        return

    def stop(self) -> None:
        """Close the window; its results are complete on return."""

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return the results of all windows as tables, by name; see :func:`define`."""
        return {}

    def notes(self) -> list[str]:
        """Return remarks for the reader, for example dropped records, multiplexing or refusals."""
        return []

    def close(self) -> None:
        """Release everything, also after a failure. It may be called more than once."""


class SessionInstrument(Instrument):
    """An instrument that holds a session of C++ while it is open."""

    _session: Any = None

    def _opened(self) -> Any:
        if self._session is None:
            raise Error(f"{self.name}: not open; call open() first")
        return self._session

    def close(self) -> None:
        """Give back what the session holds. Tables stay. Idempotent."""
        session, self._session = self._session, None
        if session is not None:
            session.close()


class HookInstrument(Instrument):
    """An instrument of hooks in torch, which exist only while a window is open."""

    _undo: ExitStack | None = None

    def hook(self, undo: ExitStack) -> None:
        """Add the hooks; `undo` removes them again."""

    @property
    def running(self) -> bool:
        """True while a window is open."""
        return self._undo is not None

    def open(self) -> None:
        if "torch" not in sys.modules:
            raise Unavailable("the process has not imported torch", remedy="import torch before profiling")

    def start(self) -> None:
        with ExitStack() as undo:
            self.hook(undo)
            self._undo = undo.pop_all()

    def stop(self) -> None:
        undo, self._undo = self._undo, None
        if undo is not None:
            undo.close()

    def close(self) -> None:
        self.stop()


def define(table: pd.DataFrame, meanings: Mapping[str, str]) -> pd.DataFrame:
    """Put a definition of each column of `table` into `table.attrs["definitions"]`, and return `table`.

    Args:
        table: a table of an instrument, or one computed from it.
        meanings: meaning and unit of each column; entries for columns that the table does not have are ignored.

    Raises:
        InvalidArgument: a column has no meaning.
    """
    missing = [column for column in table.columns if column not in meanings]
    if missing:
        raise InvalidArgument(f"no definition of {missing}; the columns defined are {sorted(meanings)}")
    table.attrs["definitions"] = {column: meanings[column] for column in table.columns}
    return table


def definitions(table: pd.DataFrame) -> dict[str, str]:
    """Return the definition of each column of `table`, from :func:`define`."""
    found: dict[str, str] = table.attrs.get("definitions", {})
    return dict(found)


# name → module of this package, class, arguments
_HOMES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "activity": (".activity", "ActivityInstrument", {}),
    "counters": (".counters", "CountersInstrument", {}),
    "cpu": (".cpu", "CpuInstrument", {}),
    "memory": (".memory", "MemoryInstrument", {}),
    "nvml": (".nvml", "NvmlInstrument", {}),
    "ops": (".cpu", "OpsInstrument", {}),
    "phases": (".phases", "PhasesInstrument", {}),
    "window": (".window", "WindowInstrument", {}),
}

# What each word brings; "timeline" is always there, since what a number costs is read against it.
METRICS: dict[str, tuple[str, ...]] = {
    "timeline": ("phases", "window", "ops", "activity"),
    "power": ("nvml", "cpu"),
    "cores": ("counters",),
    "fp32": ("counters",),
    "memory": ("memory", "counters"),
}
# Where the work is; the other would see only half of it.
_ONLY = {"ops": "cpu", "activity": "cuda", "counters": "cuda"}
NAMES = tuple(_HOMES)


@dataclass(frozen=True)
class Absent:
    """Instrument that is unavailable here, with reason and remedy."""

    name: str
    why: str
    remedy: str = ""


def make(name: str, **more: Any) -> Instrument:
    module, kind, arguments = _HOMES[name]
    made: Instrument = getattr(importlib.import_module(module, __package__), kind)(**arguments, **more)
    return made


def _refused(name: str, beside: str, words: str) -> Instrument:
    """Raise Unavailable for two instruments that exclude each other: tracing slows counted kernels, and counting
    serialises traced ones."""
    raise Unavailable(f"{name} and {beside} are not measured in one run", "", f"--metrics {words} needs a separate run")


def choose(
    metrics: str | Sequence[str], instruments: Iterable[str | Instrument] = (), device: str = "cpu"
) -> tuple[list[tuple[str, Callable[[], Instrument]]], set[str]]:
    """Choose instruments: (name and maker of each, names of those that were asked for by name).

    Args:
        metrics: words of :data:`METRICS`, several as a list or joined by `|` or `,`; `all` is all of them.
        instruments: more instruments, by a name of :data:`NAMES` or made already.
        device: device of the loop, `cpu` or `cuda`.

    Raises:
        InvalidArgument: an unknown word; the message lists the known ones and what may have been meant.
    """
    words, everything = _words(metrics)
    names = dict.fromkeys(METRICS["timeline"])
    for word in words:
        _check("metrics", word, METRICS, also=["all"])
        names |= dict.fromkeys(METRICS[word])
    makers: list[tuple[str, Callable[[], Instrument]]] = []
    # What was asked for by its own word is not dropped in silence: it opens, or it says why not.
    explicit = {name for word in words for name in METRICS[word] if not everything and word != "timeline"}
    names = {name: None for name in names if name in explicit or _ONLY.get(name, device) == device}
    counted = [word for word in words if "counters" in METRICS[word]]
    asked = set()
    for each in instruments:
        if not isinstance(each, str):
            makers.append((each.name, partial(lambda made: made, each)))
            asked.add(each.name)
            continue
        _check("instrument", each, NAMES)
        names[each] = None
        asked.add(each)
    given = {name for name, _ in makers}
    if "activity" in given | set(names) and "counters" in given | set(names):
        if everything and "counters" not in asked:
            names.pop("counters", None)
            makers.append(("counters", partial(_refused, "counters", "activity", "cores|fp32|memory")))
        elif "activity" not in asked:
            names.pop("activity", None)
            makers.append(("activity", partial(_refused, "activity", "counters", "timeline")))
    for name in names:
        if name not in given:
            more = {"metrics": counted} if name == "counters" and counted else {}
            makers.append((name, partial(make, name, **more)))
    return makers, asked


def _words(metrics: str | Sequence[str]) -> tuple[list[str], bool]:
    """Split `metrics` into words; `all` becomes all of them, and the second result True."""
    words = [
        word.strip()
        for part in ([metrics] if isinstance(metrics, str) else metrics)
        for word in part.replace("|", ",").split(",")
    ]
    if "all" not in words:
        return words, False
    return [word for word in words if word not in METRICS and word != "all"] + list(METRICS), True


def _check(what: str, word: str, known: Iterable[str], also: Sequence[str] = ()) -> None:
    known = [*known, *also]
    if word not in known:
        available = some_of(known, "`dnnsuite metrics list`")
        raise InvalidArgument(f"{what}: no {word!r}{did_you_mean(word, known)}; available: {available}")


def open_all(
    makers: Iterable[tuple[str, Callable[[], Instrument]]], asked: set[str]
) -> tuple[list[Instrument], list[Absent]]:
    """Open the instruments; return them and those that are unavailable.

    Raises:
        Unavailable: one of `asked` is unavailable; the others are closed again.
    """
    opened: list[Instrument] = []
    absent: list[Absent] = []
    with ExitStack() as undo:
        for name, make in makers:
            try:
                instrument = make()
                instrument.open()
            except Unavailable as error:
                if name in asked:
                    raise
                where = f" (looked in {error.looked_in})" if error.looked_in else ""
                absent.append(Absent(name, error.what + where, error.remedy))
            else:
                undo.callback(instrument.close)
                opened.append(instrument)
        undo.pop_all()
    return opened, absent


@contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Context manager: replace `owner.name` by the result of `make`; restores it unless it was replaced again."""
    before = getattr(owner, name)
    ours = make(before)
    setattr(owner, name, ours)
    try:
        yield
    finally:
        if getattr(owner, name) is ours:
            setattr(owner, name, before)
