# SPDX-License-Identifier: MIT
"""Board of a sweep that several processes share: owners of trials, and results of epochs.

It is a study in a storage of Optuna's: a journal file, or a database. Each rung of a trial that a process claims is a
trial of the study; its attributes are the metrics by epoch. Of claims on one trial the first in the storage counts.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._files import place, runs_here
from .._runs.interrupts import check, deferred
from ..errors import InvalidArgument, Unavailable
from .store import as_json_value

_STALE_S = 60.0  # without a sign of life of a process that is not seen from here
_SIGNS = 6  # of life in this time
_POLL_S = (0.02, 1.0)  # first and longest pause of a process that waits for others


@dataclass
class _Claim:
    """A claim on a trial: a trial of the study, of which `number` and `id` are."""

    number: int
    trial: int
    worker: str
    id: int
    running: bool = True


class Board:
    """A process's view of the board. Call :meth:`close` at the end: it gives back what is claimed.

    Args:
        storage: storage of Optuna's.
        name: name of the study, the same for all processes of the sweep.
        maximize: direction of the study, for those who look at it.
        worker: name of this process; made up by default.
        stale_s: seconds without a sign of life after which another process's claims are void.
        follows: this process only reads, and the others do not count it.
    """

    def __init__(
        self,
        storage: Any,
        name: str,
        maximize: bool = False,
        worker: str = "",
        stale_s: float = _STALE_S,
        follows: bool = False,
    ) -> None:
        self._storage, self._stale_s, self._follows = storage, stale_s, follows
        self._study = _study(storage, name, maximize)
        self.worker = worker or f"{place()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._claims: dict[int, _Claim] = {}  # by number
        self._mine: dict[int, _Claim] = {}  # by trial
        self._rows: dict[int, dict[int, dict[str, float]]] = {}  # metrics by trial and epoch
        self._seconds: dict[int, float] = {}
        self._failures: dict[int, tuple[int, str, str]] = {}  # (epoch, class, sentence) by trial
        self._signs: dict[str, tuple[int, float]] = {}  # (last sign, when it was new here) by process
        self._pause_s = _POLL_S[0]
        self._closed = threading.Event()
        if not follows:
            self._sign(0)
            threading.Thread(target=self._live, name="dnnsuite-board", daemon=True).start()

    # -- signs of life ---------------------------------------------------------------------------------------------

    def _sign(self, count: int) -> None:
        self._storage.set_study_user_attr(self._study, f"worker {self.worker}", count)

    def _live(self) -> None:
        """Second thread: give signs of life, however long an epoch takes."""
        count = 0
        while not self._closed.wait(self._stale_s / _SIGNS):
            count += 1
            with suppress(Exception):  # a storage that is away for a moment; training finds out if it stays away
                self._sign(count)

    def _lives(self, worker: str) -> bool:
        if worker == self.worker:
            return True
        sign, since_s = self._signs.get(worker, (-1, 0.0))
        where, pid, _ = worker.rsplit(":", 2)
        if where == place() and not runs_here(int(pid)):
            return False
        return sign >= 0 and time.monotonic() - since_s < self._stale_s

    @property
    def workers(self) -> int:
        """Processes that are at work, this one among them."""
        return sum(map(self._lives, {*self._signs, self.worker}))

    # -- reading ---------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read what is new."""
        now_s = time.monotonic()
        for name, count in self._storage.get_study_user_attrs(self._study).items():
            worker = name.removeprefix("worker ")
            if worker != name and self._signs.get(worker, (None,))[0] != count:
                self._signs[worker] = count, now_s
        for trial in self._storage.get_all_trials(self._study, deepcopy=False):
            known = self._claims.get(trial.number)
            if known is None or known.running:
                self._read(trial)

    def _read(self, frozen: Any) -> None:
        told = frozen.user_attrs
        trial = int(told["trial"])
        claim = self._claims.setdefault(
            frozen.number, _Claim(frozen.number, trial, told["worker"], self._id_of(frozen.number))
        )
        claim.running = not frozen.state.is_finished()
        rows = self._rows.setdefault(trial, {})
        for name, row in told.items():
            if name.startswith("epoch "):
                rows.setdefault(int(name.split()[1]), {key: float(v) for key, v in row["metrics"].items()})
                self._seconds[trial] = max(row["seconds"], self._seconds.get(trial, 0.0))
            elif name == "failure":
                self._failures.setdefault(trial, tuple(row))

    def _id_of(self, number: int) -> int:
        return int(self._storage.get_trial_id_from_study_id_trial_number(self._study, number))

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

    # -- claims ----------------------------------------------------------------------------------------------------

    def mine(self, trial: int) -> bool:
        """True if this process trains the trial."""
        return trial in self._mine

    def free(self, trials: Iterable[int]) -> set[int]:
        """List the trials that no other process trains."""
        held = {claim.trial for claim in self._claims.values() if claim.running and claim.worker != self.worker
                and self._lives(claim.worker)}  # fmt: skip
        return set(trials) - held

    def claim(self, wanted: Mapping[int, int]) -> None:
        """Claim trials; :meth:`mine` tells which this process has got.

        Args:
            wanted: epochs by trial, as far as this process has heard.
        """
        if not wanted:
            return
        with deferred():
            made = {trial: self._made(trial, epoch) for trial, epoch in wanted.items()}
            self._mine.update(made)
        self.refresh()
        for trial, claim in made.items():
            first = min(other.number for other in self._claims.values() if other.trial == trial and other.running
                        and self._lives(other.worker))  # fmt: skip
            gone_on = bool(self.rows(trial, wanted[trial])) or self.failure(trial, wanted[trial]) is not None
            if first != claim.number or gone_on:
                self.release(trial, None)

    def _made(self, trial: int, epoch: int) -> _Claim:
        from optuna.trial import TrialState, create_trial

        told = {"trial": trial, "worker": self.worker, "after": epoch}
        template = create_trial(state=TrialState.RUNNING, user_attrs=told)
        found = self._storage.create_new_trial(self._study, template_trial=template)
        number = self._storage.get_trial_number_from_id(found)
        claim = self._claims[number] = _Claim(number, trial, self.worker, found)
        return claim

    def release(self, trial: int, value: float | None) -> None:
        """Let others have a trial: at the end of a rung with its `value`, else with none."""
        from optuna.trial import TrialState

        claim = self._mine.pop(trial, None)
        if claim is None:
            return
        ended = value is not None and abs(value) < float("inf")
        state = TrialState.COMPLETE if ended else TrialState.FAIL
        self._storage.set_trial_state_values(claim.id, state=state, values=[value] if ended else None)
        claim.running = False

    # -- telling ---------------------------------------------------------------------------------------------------

    def tell(self, trial: int, epoch: int, metrics: Mapping[str, float], seconds: float) -> None:
        """Publish the metrics of an epoch of a trial of this process."""
        row = {"metrics": {name: as_json_value(v) for name, v in metrics.items()}, "seconds": seconds}
        self._storage.set_trial_user_attr(self._mine[trial].id, f"epoch {epoch}", row)
        self._rows.setdefault(trial, {})[epoch] = dict(metrics)
        self._pause_s = _POLL_S[0]

    def tell_failure(self, trial: int, epoch: int, failure: str, message: str) -> None:
        """Publish that a trial of this process has failed after `epoch` epochs."""
        self._storage.set_trial_user_attr(self._mine[trial].id, "failure", [epoch, failure, message])

    def wait(self) -> None:
        """Pause until others may have got further; pauses grow while nothing changes."""
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
            for trial in list(self._mine):
                self.release(trial, None)
            if not self._follows:
                self._sign(-1)


def _study(storage: Any, name: str, maximize: bool) -> int:
    from optuna import logging
    from optuna.exceptions import DuplicatedStudyError
    from optuna.study import StudyDirection

    direction = StudyDirection.MAXIMIZE if maximize else StudyDirection.MINIMIZE
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)  # a study is how processes meet, no news for the user
    try:
        return int(storage.create_new_study([direction], name))
    except DuplicatedStudyError:
        return int(storage.get_study_id_from_name(name))
    finally:
        logging.set_verbosity(verbosity)


def require_optuna() -> Any:
    """Optuna's module of storages.

    Raises:
        Unavailable: Optuna is not installed.
    """
    try:
        from optuna import storages
    except ImportError:
        raise Unavailable("Optuna is not installed", remedy="pip install 'dnnsuite[optuna]'") from None
    return storages


class _KernelLock:
    """A lock of Optuna's journal that ends with the process that holds it, where Optuna's own would wait 30 s."""

    def __init__(self, path: Path) -> None:
        import filelock

        self._lock = filelock.FileLock(path)

    def acquire(self) -> bool:
        self._lock.acquire(poll_interval=0.005)
        return True

    def release(self) -> None:
        self._lock.release()


def journal(path: Path) -> Any:
    """Return a storage in one file, on a file system that all processes see."""
    from optuna.storages.journal import JournalFileBackend

    lock: Any = _KernelLock(path.with_name(f".{path.name}.lock"))  # Optuna has no public base of locks
    lock.acquire()
    try:
        _drop_half_a_line(path)
    finally:
        lock.release()
    return require_optuna().JournalStorage(JournalFileBackend(str(path), lock))


def _drop_half_a_line(path: Path) -> None:
    """Cut off what a process was writing when its machine died; Optuna would read no further."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        text = file.read()
        file.truncate(text.rfind(b"\n") + 1)


def storage_of(share: Any) -> Any:
    """Return the database of a URL, or a storage as it is.

    Raises:
        Unavailable: the database does not answer.
        InvalidArgument: `share` is neither.
    """
    storages = require_optuna()
    if isinstance(share, storages.BaseStorage):
        return share
    if not isinstance(share, str) or "://" not in share:
        raise InvalidArgument(
            f"share is {share!r}: give True for a journal in out, a database as 'postgresql://...', or one of "
            "optuna.storages"
        )
    try:
        return storages.RDBStorage(share)
    except Exception as error:  # SQLAlchemy's, and of its drivers
        raise Unavailable(
            f"the database of share does not answer ({type(error).__name__})",
            remedy="see that its URL, as postgresql://user:password@host/name, works from here",
        ) from error
