# SPDX-License-Identifier: MIT
"""Place of a sweep: no directory, one of its own, one that it shares with other processes, or one of processes on
several devices of this machine, which this one follows.

The processes on devices are those of a shared sweep (`shared.py`): each plays the whole search and claims trials. The
caller's own process claims none. It hears what they find, as each of them does of the others, shows the progress, calls
the callbacks, and returns the whole sweep. A process is started fresh, not forked: a fork would survive neither CUDA
nor OpenMP's threads. So what the caller gave is packed, functions of a notebook or a script by their code.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._files import OutputError, read_json
from .._runs.folder import SWEEP_FILE, PlanFolder, joined, opened
from .._runs.group import GroupOutcome
from .._runs.identity import Identity
from .._runs.interrupts import check
from .._runs.spec import WorkerSpec
from .._runs.starters import OnShares, Share, failed_share
from .._runs.turn_workers import run_group
from ..errors import Error, InvalidArgument, Unavailable, reason
from .algorithms import Algorithm, OptunaSearch
from .arrays import Outcome
from .board import Board
from .engine import Engine
from .journal import FileJournal, TableJournal, database_of
from .shared import TOGETHER_S, SharedEngine, SharedStore
from .store import Asked, Store
from .trial import Trial

_FOLDER = "devices"  # below the sweep's, with the output of each process
REFUSED_FILE = "refused.json"  # of a process whose arguments are refused
_TASK = "dnnsuite.tuning.device_task:task"
_WAIT_S = 0.1
_FOREVER_S = 1e9


class _Closed(Exception):
    """Raised in the thread that watches the processes, to end them."""


@dataclass(frozen=True)
class Meeting:
    """The `share` of a process on a device.

    Attributes:
        storage: True for a journal in the directory, or the URL of a database.
        identity: identity of the sweep as its caller finds it; a copy of a value that was sent may differ in its text.
    """

    storage: Any
    identity: Identity


@dataclass
class FollowingEngine(SharedEngine):
    """Engine of a process that trains nothing: it hears of everything, and tells of all that is new."""

    def run(self) -> None:
        """Follow the processes on the devices to the end of the search, and wait for them.

        Raises:
            Error: one of them ended early; the message names its device.
        """
        super().run()
        assert isinstance(self.trainer, OnDevices)
        self.trainer.finish()

    def _is_news(self, trial: Trial) -> bool:
        kept = self._kept.get(trial.number)
        return trial.epoch > (0 if kept is None else len(kept.history))

    def _tells(self, trial: Trial) -> bool:
        return True


class OnDevices:
    """Trainer whose trials are trained by processes on devices, started when the first are ready.

    Args:
        shares: devices.
        arguments: arguments of `dnnsuite.sweep` that are the same for each of them; `share` is a `Meeting`.

    Raises:
        InvalidArgument: an argument cannot be sent to another process; the message names it.
        Unavailable: cloudpickle is not installed.
    """

    def __init__(self, shares: Sequence[Share], arguments: Mapping[str, Any]) -> None:
        self._shares = shares
        self._scratch = Path(tempfile.mkdtemp(prefix="dnnsuite-sweep-"))
        self._remove = weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        _pack(arguments, self._scratch / "arguments.pkl")
        self._closed = threading.Event()
        self._watcher: threading.Thread | None = None
        self._ended: GroupOutcome | BaseException | None = None
        self._rounds_after_end = 0
        self.root: Path | None = None  # the sweep's directory, known before the first trial is ready
        # Processes of several machines may share the directory.
        self._own = "" if arguments["share"].storage is True else f"{os.uname().nodename}-{os.getpid()}"

    # -- a trainer's methods ---------------------------------------------------------------------------------------

    at_once = 1

    def chosen(self, ready: Sequence[Trial]) -> list[Trial]:
        """Choose none, but see that those who train are at work."""
        if self._watcher is None:
            self._start()
        self._refuse_end()
        return []

    def train(self, trials: Sequence[Trial]) -> list[Outcome]:
        """Train nothing: no trial is claimed here."""
        return []

    def park(self, trial: Trial) -> Any:
        """Return nothing: the states are on disk."""
        return None

    def peek(self, trial: Trial) -> Any:
        """Return nothing: the states are on disk."""
        return None

    def weights(self, trial: Trial) -> dict[str, Any]:
        """Return nothing: the best weights are on disk."""
        return {}

    def close(self) -> None:
        """End the processes that still run; they give back their trials."""
        self._closed.set()
        if self._watcher is not None:
            self._watcher.join()
        self._remove()

    # -- processes -------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Wait until every process has written what is its own."""
        while self._watcher is not None and self._watcher.is_alive():
            check()
            self._watcher.join(_WAIT_S)
        self._refuse_failure()

    def _start(self) -> None:
        assert self.root is not None
        specs = []
        for share in self._shares:
            folder = self._folder_of(share)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            details = {
                "arguments": str(self._scratch / "arguments.pkl"), "root": str(self.root.resolve()),
                "device": share.device, "threads": share.threads,
            }  # fmt: skip
            paths = (os.getcwd(), *(path for path in sys.path if path))
            specs.append(WorkerSpec(_TASK, str(folder), "", {}, details, (), paths))
        self._watcher = threading.Thread(target=self._watch, args=(specs,), name="dnnsuite-devices", daemon=True)
        self._watcher.start()

    def _folder_of(self, share: Share) -> Path:
        assert self.root is not None
        return self.root / _FOLDER / self._own / share.name.replace(":", "-")

    def _watch(self, specs: Sequence[WorkerSpec]) -> None:
        """Second thread: run the processes until all have ended, one has failed, or the trainer is closed."""
        variables = [{"OMP_NUM_THREADS": str(share.threads)} for share in self._shares]
        try:
            self._ended = run_group(specs, variables, _FOREVER_S, OnShares(self._shares), "end", self._end_if_closed)
        except BaseException as error:
            self._ended = error

    def _end_if_closed(self) -> None:
        if self._closed.is_set():
            raise _Closed

    def _refuse_end(self) -> None:
        self._refuse_failure()
        if self._ended is not None:
            self._rounds_after_end += 1
            if self._rounds_after_end > 2:  # all that they have told has been read
                raise Error(
                    f"the processes on the devices ended before the sweep; their output is in {self.root}/{_FOLDER}"
                )

    def _refuse_failure(self) -> None:
        if isinstance(self._ended, BaseException):
            raise self._ended
        failed = None if self._ended is None else failed_share(self._ended, self._shares)
        if failed is None:
            return
        share, why = failed
        refused = self._folder_of(share) / REFUSED_FILE
        if refused.is_file():
            raise InvalidArgument(f"{share.name}: {read_json(refused)['message']}")
        raise Error(
            f"{share.name}: {why}; finished rungs are kept, continue with resume; its output is in "
            f"{self._folder_of(share)}"
        )


def _pack(arguments: Mapping[str, Any], path: Path) -> None:
    try:
        import cloudpickle  # type: ignore[import-untyped]
    except ImportError:
        raise Unavailable("cloudpickle is not installed", remedy="pip install 'dnnsuite[optuna]'") from None
    try:
        with path.open("wb") as file:
            cloudpickle.dump(dict(arguments), file)
    except OSError as error:
        raise OutputError(f"cannot write {path}, for the processes on the devices: {error.strerror}") from error
    except Exception as error:
        for name, value in arguments.items():
            try:
                cloudpickle.dumps(value)
            except Exception as own:
                raise InvalidArgument(
                    f"each device has its own process, and {name} cannot be sent there: {reason(own)}"
                ) from error
        raise


_JOURNAL = "journal.log"


class Place:
    """A sweep's directory, or none; it makes the store and the engine that belong to it.

    Args:
        asked: identity of the sweep, and names of parts that may differ when it is resumed.
        board: board of the processes that share the directory, which is known to be the sweep's.
        changed: differences of a shared directory when it was joined, as sentences by name.
        kind: engine of this process; None for that of one alone.
    """

    def __init__(
        self,
        folder: PlanFolder | None,
        asked: Asked,
        board: Board | None = None,
        changed: Mapping[str, str] | None = None,
        kind: type[Engine] | None = None,
    ) -> None:
        self._folder, self._asked, self._board, self._changed, self._kind = folder, asked, board, changed, kind
        self.began = False  # True once the directory is this sweep's, of this process alone

    @property
    def root(self) -> Path | None:
        """The directory; None without one."""
        return None if self._folder is None else self._folder.root

    @property
    def id(self) -> str:
        """Id of the directory; empty without one."""
        return "" if self._folder is None else self._folder.id

    def store(self, job: str, mode: str, device: str, keeps_states: bool) -> Store | None:
        """Return the records of the sweep.

        Raises:
            InvalidArgument: the directory is of another sweep.
        """
        if self._folder is None:
            return None
        if self._board is not None:
            writer = self._board.worker.rsplit(":", 1)[-1]
            shared = SharedStore(self._folder, job, mode, device, keeps_states, writer)
            shared.changed = self._changed or {}
            return shared
        store = Store(self._folder, job, mode, device, keeps_states)
        store.begin(self._asked)
        self.began = True
        return store

    def engine(self, **parts: Any) -> Engine:
        """Return the loop of the sweep out of its parts."""
        return (self._kind or Engine)(**(parts if self._board is None else {**parts, "board": self._board}))


@contextmanager
def shared_place(
    out: Any, share: Any, algorithm: Algorithm, asked: Asked, maximize: bool, kind: type[SharedEngine] = SharedEngine
) -> Iterator[Place]:
    """Join the processes that do a sweep in the directory `out` together; the first one makes it.

    Args:
        kind: engine of this process; a `FollowingEngine` trains nothing.

    Raises:
        InvalidArgument: `out` is missing or of another sweep, or the algorithm cannot be shared so.
        Unavailable: the database of `share` does not answer.
    """
    if out in (None, True, False):
        raise InvalidArgument("share needs a directory that all processes see: name it with out")
    _refuse_unshared(algorithm)
    root = Path(out)
    database = database_of(share)  # before anything is made
    with joined(root, SWEEP_FILE) as folder:
        first = Store(folder, "", "", "cpu", False)
        first.begin(asked)
        name = f"dnnsuite-{folder.id}"
        journal = FileJournal(root / _JOURNAL) if database is None else TableJournal(database, name)
    board = Board(journal, name, maximize, follows=kind is FollowingEngine, together_s=TOGETHER_S)
    try:
        yield Place(folder, asked, board, first.changed, kind)
    finally:
        board.close()


@contextmanager
def followed_place(
    root: Path, resume: bool, share: Any, algorithm: Algorithm, asked: Asked, maximize: bool
) -> Iterator[Place]:
    """Open the directory of a sweep that processes on devices do, and follow them there.

    Raises:
        InvalidArgument: as :func:`shared_place`; or the directory is not empty, and `resume` and `share` are False.
        Unavailable: the database of `share` does not answer.
    """
    _refuse_unshared(algorithm)
    if share is False:
        with opened(root, SWEEP_FILE, resume) as folder:
            Store(folder, "", "", "cpu", False).begin(asked)
    with shared_place(root, share or True, algorithm, asked, maximize, FollowingEngine) as place:
        try:
            yield place
        except BaseException as error:
            if share is False:
                with joined(root, SWEEP_FILE) as folder:
                    folder.end_early(error)
            raise


def _refuse_unshared(algorithm: Algorithm) -> None:
    if isinstance(algorithm, OptunaSearch):
        raise InvalidArgument(
            "OptunaSearch is shared by its study: give each process a study in one storage, an out of its own, and no "
            "share or devices"
        )
