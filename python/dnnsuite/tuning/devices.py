# SPDX-License-Identifier: MIT
"""A sweep on several devices of one machine: a process on each, which share its directory, and this one that follows.

The processes are those of a shared sweep (`shared.py`): each plays the whole search and claims trials. The caller's own
process claims none. It hears what they find, as each of them does of the others, shows the progress, calls the
callbacks, and returns the whole sweep. A process is started fresh, not forked: a fork would survive neither CUDA nor
OpenMP's threads. So what the caller gave is packed, functions of a notebook or a script by their code.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._files import OutputError, read_json
from .._runs.group import GroupOutcome
from .._runs.identity import Identity
from .._runs.interrupts import check
from .._runs.spec import WorkerSpec
from .._runs.starters import OnShares, Share, failed_share
from .._runs.turn_workers import run_group
from ..errors import Error, InvalidArgument, Unavailable, reason
from .arrays import Outcome
from .shared import SharedEngine
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
