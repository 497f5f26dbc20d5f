# SPDX-License-Identifier: MIT
"""The directory of a plan of runs: a lock, its state, a folder for each finished run, and the rules of --resume."""

from __future__ import annotations

import fcntl
import logging
import math
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from .._files import (
    PLAN_LOCK,
    TEMPORARY,
    OutputError,
    Unsealed,
    final_name,
    is_abandoned,
    read_sealed,
    sealed,
    temporary_name,
    unchanged,
    write_text,
)
from ..errors import Error, InvalidArgument, reason
from .failures import FINAL
from .identity import Identity, cannot_tell, check_same
from .interrupts import Interrupted
from .reading import RUN_FILE, ReadRun, read_runs
from .record import RunRecord, new_id

WORKFLOW_FILE, SUITE_FILE, CLUSTER_FILE = "workflow.json", "suite.json", "cluster.json"
SWEEP_FILE = "sweep.json"
PROFILES_FILE, THROUGHPUT_FILE = "profiles.json", "throughput.json"

OUT = Path("dnnsuite-runs")  # where directories are made that nobody named
_TURN = ".turn"  # file that says of those that share a plan whose turn it is
_STAMP = re.compile(r"\d{8}-\d{6}-\d{3}")
_UNKNOWN = math.inf  # place of a plan whose file is damaged
_POLL_S = 0.05


class PlanFolder:
    """The directory of a plan; `state` is the contents of the plan's file."""

    def __init__(self, root: Path, file: str, state: dict[str, Any], runs: str = "runs") -> None:
        self.root, self.file, self.state = root, file, state
        self.runs = root / runs  # folder of the finished runs
        self._is_old = bool(state.keys() - {"number"})
        self._has_id = not self._is_old or "id" in state  # an earlier version gave none
        state.setdefault("id", new_id())

    @classmethod
    def read(cls, root: Path, file: str) -> PlanFolder:
        """Read the directory of a plan that another process keeps."""
        return cls(root, file, _state(root / file))

    @property
    def id(self) -> str:
        """Id of the plan; each of its runs repeats it."""
        return str(self.state["id"])

    def save(self) -> None:
        """Write the state."""
        write_text(self.root / self.file, sealed(self.state, 1))

    def identify(self, identity: Identity, allowed: Sequence[str] | None = ()) -> dict[str, str]:
        """Note what decides the numbers of a plan that begins; of one that continues, refuse what has changed.

        Args:
            allowed: names of parts that may differ, which `changed` of the state tells of; None for none ever.

        Returns:
            What differs and was allowed to, as sentences by name.

        Raises:
            InvalidArgument: another part differs, or the directory does not say what it was.
        """
        new: dict[str, str] = {}
        if self._is_old:
            new = check_same(self.root, self.state.get("identity"), identity, allowed)
        elif identity.unknown:
            logging.getLogger("dnnsuite").warning(cannot_tell(identity.unknown))
        self.state["changed"] = {**self.state.get("changed", {}), **new}
        self.state["identity"] = identity.to_dict()
        return new

    @property
    def changed(self) -> dict[str, str]:
        """Differences when the plan was resumed, as sentences by name."""
        return dict(self.state.get("changed", {}))

    def scratch(self, *parts: str) -> Path:
        """Return an empty directory for the workers of a dry run or a check."""
        path = self.root.joinpath(*parts)
        try:
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
        except OSError as error:
            raise OutputError(f"cannot write {path}: {reason(error)}") from error
        return path

    def begin_run(self, name: str) -> Path:
        """Make the directory of a run, hidden from readers until :meth:`finish_run`.

        Raises:
            OutputError: a link has its name: what a run replaces lies in the plan's own directory.
        """
        if os.path.islink(f"{self.runs}/{name}"):
            raise OutputError(f"{self.runs / name} is a link, and a run is to be written there: remove it")
        path = self.runs / temporary_name(name)
        return self.scratch(str(path.relative_to(self.root)))

    def finish_run(self, temporary: Path, run: RunRecord) -> Path:
        """Write `run.json` and give the directory its name, in place of an older run's."""
        final = self.runs / final_name(temporary.name)
        write_run(temporary, run)
        try:
            if final.is_dir():
                shutil.rmtree(final)
            os.rename(temporary, final)
        except OSError as error:
            raise OutputError(f"cannot write {final}: {reason(error)}") from error
        return final

    def drop_unfinished(self) -> None:
        """Remove what dead processes left half-made in this directory: not behind a link, nor in the directory of
        another plan that lies in it."""
        drop_abandoned(self.root)

    def end_early(self, error: BaseException) -> None:
        """Remove half-made directories and note the error that ended the plan, unless the disk is full."""
        self.drop_unfinished()
        self.state["status"] = f"{'interrupted' if isinstance(error, Interrupted) else 'ended'} by {error}"
        with suppress(OutputError):
            self.save()

    def finished(self) -> tuple[list[ReadRun], list[str]]:
        """Return (finished runs, oldest name first; a sentence for each damaged or foreign one, which is left out)."""
        found, problems = read_runs(self.runs)
        runs = []
        for run in found:
            if self._has_id and run.record.plan_id != self.id:
                problems.append(f"skipped: {run.directory} is a run of another plan than {self.root / self.file}")
            elif damage := _damage_of(run):
                problems.append(f"skipped: {damage}")
            else:
                runs.append(run)
        return runs, problems


def _damage_of(run: ReadRun) -> str:
    """Name the first file of a run's samples that was cut or edited, and what is wrong with it; "" without any."""
    for path in (run.directory / name for name in (run.record.samples.files if run.record.samples else ())):
        try:
            if path.is_file():
                unchanged(path)
        except (OSError, ValueError) as error:
            return f"{path}: {reason(error)}"
    return ""


def write_run(directory: Path, run: RunRecord) -> None:
    """Write `run.json` of a run that has a directory."""
    write_text(directory / RUN_FILE, sealed(run.to_dict(), 1))


def drop_abandoned(folder: str | Path, is_own: bool = True) -> None:
    """Remove what dead processes left half-made in a folder, but not behind links nor in plans that lie in it.

    Args:
        is_own: False for a folder in that of a plan, which is left alone where it is another plan's.
    """
    with suppress(OSError):  # what cannot be read holds nothing of ours
        with os.scandir(folder) as entries:  # which tells kinds without asking again
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        if PLAN_LOCK in [name for name, _ in found] and not is_own:
            return
        for name, real_folder in found:
            if not name.startswith(TEMPORARY):
                if real_folder:
                    drop_abandoned(f"{folder}/{name}", is_own=False)
            elif is_abandoned(path := Path(folder, name)):
                if real_folder:
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)


def _contents(root: Path) -> list[str]:
    """Names in a plan's directory, but for its locks and for what is half-made."""
    names = {path.name for path in root.iterdir()} - {PLAN_LOCK, _TURN}
    return sorted(name for name in names if not name.startswith(TEMPORARY))


def stamp(now_s: float | None = None) -> str:
    """Local time for names, sortable, to the millisecond: 20261121-051612-250."""
    now_s = time.time() if now_s is None else now_s
    return f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(now_s))}-{int(now_s * 1000) % 1000:03d}"


def default_out(name: str, file: str, resume: bool) -> Path:
    """Choose a directory that the user did not name: a new one, or with `resume` the last that holds `file`.

    Raises:
        InvalidArgument: there is none to continue, or it cannot be told which was the last.
    """
    if not resume:
        return OUT / f"{name}-{stamp()}"
    begun = [path for path in sorted(OUT.glob(f"{name}-*")) if _STAMP.fullmatch(path.name.removeprefix(f"{name}-"))]
    found = {path: max(numbers) for path in begun if (numbers := _numbers(path, file))}
    if not found:
        raise InvalidArgument(f"--resume: there is no {OUT}/{name}-*, nothing to continue; name it with --out")
    latest = max((number for number in found.values() if number < _UNKNOWN), default=_UNKNOWN)
    last = [folder for folder, number in found.items() if number in (latest, _UNKNOWN)]
    if len(last) > 1:
        raise InvalidArgument(
            f"--resume: {last[-2]} or {last[-1]} may be the last that was begun, nothing in them says which; "
            "name it with --out"
        )
    return last[0]


def _numbers(folder: Path, file: str) -> list[float]:
    """Places of the plans in a folder, and in folders in it, in the order in which those here were begun.

    Names and times of files do not tell it: clocks jump back, for summer time, or differ between machines.
    """
    found: list[float] = []
    for path in (each for depth in ("", "*/", "*/*/") for each in folder.glob(depth + file)):
        try:
            found.append(float(_state(path).get("number", 0)))
        except (Error, TypeError, ValueError):
            found.append(_UNKNOWN)
    return found


def _begun(root: Path, file: str) -> dict[str, Any]:
    """State of a plan that begins: its place, where others may be taken for it."""
    if OUT.resolve() not in root.resolve().parents:
        return {}
    found = [number for folder in OUT.glob("*/") for number in _numbers(folder, file) if number < _UNKNOWN]
    return {"number": 1 + int(max(found, default=0))}


_ANOTHER = "choose another --out"


@contextmanager
def opened(root: Path, file: str, resume: bool, runs: str = "runs") -> Iterator[PlanFolder]:
    """Open a plan's directory: make it if need be, and lock it against a second process.

    Args:
        root: the output directory.
        file: name of the file in it that holds the state.
        resume: True to continue what is in it; with False it must be empty or absent.
        runs: folder in it of the finished runs; "." is itself.

    Raises:
        InvalidArgument: `root` holds something and `resume` is False, or nothing and `resume` is True; or its file is
            damaged, or another process is at work there.
        OutputError: it cannot be made or written.
    """
    import filelock

    existed = root.exists()
    if resume and not (root / file).is_file():
        used = existed and root.is_dir() and _contents(root)
        way = f", so what is in it cannot be continued: {_ANOTHER}" if used else "; leave out --resume to start there"
        raise InvalidArgument(f"nothing to resume: {root} holds no {file}{way}")
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(root / PLAN_LOCK)
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise InvalidArgument(f"another process is at work in {root}; wait for it or choose another --out") from None
    except OSError as error:
        raise OutputError(f"cannot write to {root}: {reason(error)}") from error
    try:
        others = _contents(root)
        if others and not resume:
            way = f"; continue it with --resume or {_ANOTHER} (in Python resume=True, out=...)"
            if not (root / file).is_file():
                way = f" and holds no {file}, so what is in it cannot be continued: {_ANOTHER}"
            raise InvalidArgument(f"{root} is not empty ({others[0]}{', …' if others[1:] else ''}){way}")
        folder = PlanFolder(root, file, _state(root / file) if resume else _begun(root, file), runs)
        folder.drop_unfinished()
        yield folder
    finally:
        lock.release()
        # The lock file stays: removing it would let a third process lock a new file beside a second one's old
        # one.
        if not existed and [path.name for path in root.iterdir()] == [PLAN_LOCK]:
            shutil.rmtree(root, ignore_errors=True)


@contextmanager
def joined(root: Path, file: str, wait_s: float = 60.0) -> Iterator[PlanFolder]:
    """Open the directory of a plan that several processes share: have it alone for a moment and read its file afresh.

    Args:
        root: the output directory, made if need be; on a file system that all of them share.
        file: name of the file in it that holds the state; the first process writes it.
        wait_s: seconds to wait for a process that is alone there; for those that share the plan there is no limit.

    Raises:
        InvalidArgument: `root` holds other things, or a process that does not share the plan is at work there.
        OutputError: it cannot be made or written.
    """
    with ExitStack() as held:
        try:
            root.mkdir(parents=True, exist_ok=True)
            lock, turn = (held.enter_context(open(root / name, "ab")) for name in (PLAN_LOCK, _TURN))
            _share(lock, root, wait_s)
            fcntl.flock(turn, fcntl.LOCK_EX)  # first come, first served, however many there are
        except OSError as error:
            raise OutputError(f"cannot write to {root}: {reason(error)}") from error
        others = _contents(root)
        if others and not (root / file).is_file():
            raise InvalidArgument(f"{root} holds {others[0]} and no {file}; choose another --out")
        yield PlanFolder(root, file, _state(root / file) if others else _begun(root, file))


def _share(lock: IO[bytes], root: Path, wait_s: float) -> None:
    """Hold the lock of a directory together with all that share it; a process that is alone there holds it whole."""
    until_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until_s:
                raise InvalidArgument(
                    f"another process is at work in {root} alone; wait for it or choose another --out"
                ) from None
            time.sleep(_POLL_S)


def _state(path: Path) -> dict[str, Any]:
    try:
        return dict(read_sealed(path))
    except Unsealed as error:
        raise InvalidArgument(str(error)) from error
    except (Error, TypeError, ValueError) as error:
        why = str(error) if isinstance(error, Error) else f"{path}: not the file of a plan"
        raise InvalidArgument(f"{why}; without it what is in {path.parent} cannot be continued: {_ANOTHER}") from error


def final(record: RunRecord) -> bool:
    """True if --resume keeps a run: it ended well, or with a failure that would come again."""
    return record.ok or record.verdict.failure in FINAL


def refuse_other_settings(root: Path, odd: Sequence[str]) -> None:
    """Refuse to continue a plan that was begun with other settings or in another environment.

    Args:
        odd: differences as sentences; without any nothing is refused.

    Raises:
        InvalidArgument: there is a difference.
    """
    if odd:
        raise InvalidArgument(
            f"--resume: {root} was made with other settings: {'; '.join(odd)}; "
            "give the same options (or none), or choose another --out"
        )
