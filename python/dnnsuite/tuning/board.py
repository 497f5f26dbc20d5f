# SPDX-License-Identifier: MIT
"""Board of a sweep that several processes share: owners of trials, and results of epochs.

It is kept in a journal. In the words of Optuna, whose format it has: each rung of a trial that a process claims is a
trial of a study, and its attributes are the metrics by epoch. A claim is made while nobody else writes, so that a trial
is one process's, and an epoch that others have told is not told again.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import islice
from typing import Any

from .._files import place, runs_here
from .._runs.interrupts import check, deferred
from ..errors import Error
from .journal import Journal
from .store import as_json_value

_STALE_S = 60.0  # without a sign of life of a process that is not seen from here
_SIGNS = 6  # of life in this time
_POLL_S = (0.02, 0.25)  # first and longest pause of a process that waits for others
_STUDY, _SIGN, _CLAIM, _END, _TELL = 0, 2, 4, 6, 8  # kinds of lines
_COMPLETE, _FAIL = 1, 3  # states of a claim
_MINIMIZE, _MAXIMIZE = 1, 2


@dataclass
class _Claim:
    """A claim on a trial; `number` is its place among all claims."""

    number: int
    trial: int
    worker: str


class Board:
    """A process's view of the board. Call :meth:`close` at the end: it gives back what is claimed.

    Args:
        journal: the sweep's.
        name: name of the study, the same for all processes of the sweep.
        maximize: direction of the study, for those who look at it.
        worker: name of this process; made up by default.
        stale_s: seconds without a sign of life after which another process's claims are void.
        follows: this process only reads, and the others do not count it.
        together_s: seconds for which results may wait to be written with others, see :meth:`keep_up`.
    """

    def __init__(
        self,
        journal: Journal,
        name: str,
        maximize: bool = False,
        worker: str = "",
        stale_s: float = _STALE_S,
        follows: bool = False,
        together_s: float = 0.0,
    ) -> None:
        self._journal, self._name, self._maximize = journal, name, maximize
        self._stale_s, self._follows, self._together_s = stale_s, follows, together_s
        self.worker = worker or f"{place()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._begun = False  # the journal has its first line
        self._claims: list[_Claim] = []  # by number
        self._open: dict[int, _Claim] = {}  # those that run, by number
        self._mine: dict[int, _Claim] = {}  # by trial
        self._rows: dict[int, dict[int, dict[str, float]]] = {}  # metrics by trial and epoch
        self._seconds: dict[int, float] = {}
        self._failures: dict[int, tuple[int, str, str]] = {}  # (epoch, class, sentence) by trial
        self._signs: dict[str, tuple[int, float]] = {}  # (last sign, when it was new here) by process
        self._living: set[str] = {self.worker}
        self._news: set[int] = set()  # trials of which something was read
        self._lines: list[dict[str, Any]] = []  # that wait to be written
        self._written_s = time.monotonic()
        self._pause_s = _POLL_S[0]
        self._lock = threading.RLock()
        self._closed = threading.Event()
        if follows:
            self.refresh()
        else:
            self._sign(0)
            threading.Thread(target=self._live, name="dnnsuite-board", daemon=True).start()

    # -- signs of life ---------------------------------------------------------------------------------------------

    def _sign(self, count: int) -> None:
        self._commit([{"op_code": _SIGN, "study_id": 0, "user_attr": {f"worker {self.worker}": count}}])

    def _live(self) -> None:
        """Second thread: give signs of life, however long an epoch takes."""
        count = 0
        while not self._closed.wait(self._stale_s / _SIGNS):
            count += 1
            # A journal may be away for a moment; training finds out if it stays away.
            with suppress(Exception), self._lock:
                if not self._closed.is_set():  # or it would be alive for others after it has left
                    self._sign(count)

    def _lives(self, worker: str) -> bool:
        sign, since_s = self._signs[worker]
        where, pid, _ = worker.rsplit(":", 2)
        if where == place() and not runs_here(int(pid)):
            return False
        return sign >= 0 and time.monotonic() - since_s < self._stale_s

    @property
    def workers(self) -> int:
        """Processes that are at work, this one among them."""
        return len(self._living)

    # -- reading ---------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read what is new."""
        with deferred(), self._lock:
            lines = self._journal.read()
            try:
                for line in json.loads(f"[{','.join(lines)}]"):  # twice as quick as one by one
                    self._read(line)
            except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
                odd = next((line for line in lines if not _is_json(line)), lines[0])
                raise Error(
                    f"{self._journal.where}: not a line of a sweep's journal: {odd[:80]!r}; the records in the "
                    "sweep's directory are whole: sweep again with another out"
                ) from error
            self._living = {self.worker, *filter(self._lives, self._signs)}

    def _read(self, line: Mapping[str, Any]) -> None:
        kind = line["op_code"]
        if kind == _STUDY:
            self._begun = True
        elif kind == _SIGN:
            for name, count in line["user_attr"].items():
                if (worker := name.removeprefix("worker ")) != name:
                    self._signs[worker] = int(count), time.monotonic()
        elif kind == _CLAIM:
            told = line["user_attrs"]
            claim = _Claim(len(self._claims), int(told["trial"]), told["worker"])
            self._claims.append(claim)
            self._open[claim.number] = claim
            if claim.worker == self.worker:
                self._mine[claim.trial] = claim
        elif kind == _END:
            self._open.pop(line["trial_id"], None)
        elif kind == _TELL:
            trial = self._claims[line["trial_id"]].trial
            self._news.add(trial)
            for name, row in line["user_attr"].items():
                if name == "failure":
                    self._failures.setdefault(trial, tuple(row))
                elif (epoch := name.removeprefix("epoch ")) != name:
                    metrics = {key: float(value) for key, value in row["metrics"].items()}
                    self._rows.setdefault(trial, {}).setdefault(int(epoch), metrics)
                    self._seconds[trial] = max(row["seconds"], self._seconds.get(trial, 0.0))

    def news(self) -> set[int]:
        """Return the trials with news since the last call."""
        with self._lock:
            found, self._news = self._news, set()
        return found

    def rows(self, trial: int, after: int) -> list[dict[str, float]]:
        """Metrics of the epochs of a trial that are known one after the other, from the one that follows `after`."""
        known = self._rows.get(trial, {})
        found: list[dict[str, float]] = []
        while (epoch := after + len(found) + 1) in known:
            found.append(known[epoch])
        return found

    def seconds(self, trial: int) -> float:
        """Seconds that a trial has taken so far."""
        return self._seconds.get(trial, 0.0)

    def failure(self, trial: int, epoch: int) -> tuple[str, str] | None:
        """Return (class, sentence) of what ended a trial after `epoch` epochs."""
        found = self._failures.get(trial)
        return found[1:] if found is not None and found[0] == epoch else None

    def fails(self, trial: int) -> bool:
        """True if a process has told that a trial has failed, be it after epochs of which nothing was heard here."""
        return trial in self._failures

    # -- claims ----------------------------------------------------------------------------------------------------

    @property
    def own(self) -> Iterable[int]:
        """Trials that this process trains."""
        return self._mine.keys()

    def mine(self, trial: int) -> bool:
        """True if this process trains the trial."""
        return trial in self._mine

    def held(self) -> set[int]:
        """List the trials that other processes train."""
        with self._lock:
            others = self._living - {self.worker}
            return {claim.trial for claim in self._open.values() if claim.worker in others}

    def claim(self, wanted: Mapping[int, int], most: int | None = None) -> None:
        """Claim trials; :meth:`mine` tells which this process has got.

        Args:
            wanted: epochs by trial, as far as this process has heard; the first ones are taken that are free.
            most: number of trials that are taken.
        """
        if wanted:
            self._commit((), wanted, len(wanted) if most is None else most)

    def release(self, trial: int, value: float | None) -> None:
        """Let others have a trial: at the end of a rung with its `value`, else with none."""
        claim = self._mine.pop(trial, None)
        if claim is None:
            return
        ended = value is not None and abs(value) < float("inf")
        self._put({
            "op_code": _END, "trial_id": claim.number, "state": _COMPLETE if ended else _FAIL,
            "values": [value] if ended else None, "datetime_complete": _now(),
        })  # fmt: skip

    # -- telling ---------------------------------------------------------------------------------------------------

    def tell(self, trial: int, epoch: int, metrics: Mapping[str, float], seconds: float) -> None:
        """Publish the metrics of an epoch of a trial of this process."""
        row = {"metrics": {name: as_json_value(v) for name, v in metrics.items()}, "seconds": seconds}
        self._pause_s = _POLL_S[0]
        self._tell(trial, f"epoch {epoch}", row)

    def tell_failure(self, trial: int, epoch: int, failure: str, message: str) -> None:
        """Publish that a trial of this process has failed after `epoch` epochs."""
        self._tell(trial, "failure", [epoch, failure, message])

    def _tell(self, trial: int, name: str, value: Any) -> None:
        self._put({"op_code": _TELL, "trial_id": self._mine[trial].number, "user_attr": {name: value}})

    # -- writing ---------------------------------------------------------------------------------------------------

    def _put(self, line: dict[str, Any]) -> None:
        with self._lock:
            self._lines.append(line)
        if not self._together_s:
            self.flush()

    def keep_up(self, busy: bool) -> None:
        """Write what waits and read what is new; if this process is busy, when the last time was long enough ago: an
        epoch that took long is told at once."""
        if not busy or time.monotonic() - self._written_s >= self._together_s:
            self.flush()
            self.refresh()
            self._written_s = time.monotonic()

    def flush(self) -> None:
        """Write what waits."""
        if self._lines:
            self._commit(())

    def _commit(self, more: Iterable[dict[str, Any]], wanted: Mapping[int, int] | None = None, most: int = 0) -> None:
        """Write what waits, and `more`, and claims on what is free of `wanted`, while nobody else writes."""
        self.refresh()  # most of what is new, so that the others wait for little
        with deferred(), self._lock, self._journal.alone():
            self.refresh()
            waiting = len(self._lines)
            direction = _MAXIMIZE if self._maximize else _MINIMIZE
            study = {"op_code": _STUDY, "study_name": self._name, "directions": [direction]}
            lines = [] if self._begun else [study]
            lines += [line for line in self._lines if not self._is_told(line)]
            lines += more
            held = self.held() if wanted else set()
            asked = (wanted or {}).items()
            free = ((trial, n) for trial, n in asked if trial not in held and not self._has_gone_on(trial, n))
            for trial, after in islice(free, most):
                told = {"trial": trial, "worker": self.worker, "after": after}
                lines.append({"op_code": _CLAIM, "study_id": 0, "datetime_start": _now(), "user_attrs": told})
            texts = [json.dumps({**line, "worker_id": self.worker}, separators=(",", ":")) for line in lines]
            if texts:
                self._journal.add(texts)
        with self._lock:
            del self._lines[:waiting]
        self.refresh()  # own lines as well: a claim is known by its place
        self._written_s = time.monotonic()

    def _is_told(self, line: Mapping[str, Any]) -> bool:
        """True for results that others have told, who took this process for dead."""
        if line["op_code"] != _TELL:
            return False
        trial, (name,) = self._claims[line["trial_id"]].trial, line["user_attr"]
        if name == "failure":
            return trial in self._failures
        return int(name.removeprefix("epoch ")) in self._rows.get(trial, {})

    def _has_gone_on(self, trial: int, after: int) -> bool:
        """True if others have told more of a trial than its first `after` epochs."""
        return bool(self.rows(trial, after)) or self.failure(trial, after) is not None

    def wait(self) -> None:
        """Pause until others may have got further; pauses grow while nothing changes."""
        self.flush()
        check()
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _POLL_S[1])

    def heard(self) -> None:
        """Make pauses short again: others have got further."""
        self._pause_s = _POLL_S[0]

    def close(self) -> None:
        """Give back what is claimed, and leave."""
        self._closed.set()
        with deferred(), suppress(Exception):  # others will find out by themselves
            self._together_s = float("inf")
            for trial in list(self._mine):
                self.release(trial, None)
            if self._follows:
                self.flush()
            else:
                self._sign(-1)


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")
