# SPDX-License-Identifier: MIT
"""Place of a sweep: no directory, one of its own, or one that it shares with other processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .._runs.folder import SWEEP_FILE, PlanFolder, joined, opened
from ..errors import InvalidArgument
from .algorithms import Algorithm, OptunaSearch
from .board import Board
from .devices import FollowingEngine
from .engine import Engine
from .journal import FileJournal, TableJournal, database_of
from .shared import TOGETHER_S, SharedEngine, SharedStore
from .store import Asked, Store

_JOURNAL = "journal.log"


class Place:
    """A sweep's directory, or none; it makes the store and the engine that belong to it.

    Args:
        asked: identity of the sweep, and names of parts that may differ when it is resumed.
    """

    def __init__(self, folder: PlanFolder | None, asked: Asked) -> None:
        self._folder, self._asked = folder, asked
        self.began = False  # True once the directory is this sweep's

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
        store = Store(self._folder, job, mode, device, keeps_states)
        store.begin(self._asked)
        self.began = True
        return store

    def engine(self, **parts: Any) -> Engine:
        """Return the loop of the sweep out of its parts."""
        return Engine(**parts)


class _SharedPlace(Place):
    """A directory of several processes."""

    def __init__(
        self, folder: PlanFolder, asked: Asked, board: Board, changed: Mapping[str, str], kind: type[SharedEngine]
    ) -> None:
        super().__init__(folder, asked)
        self._shared, self._board, self._changed, self._kind = folder, board, changed, kind

    def store(self, job: str, mode: str, device: str, keeps_states: bool) -> Store:
        store = SharedStore(self._shared, job, mode, device, keeps_states, worker=self._board.worker)
        store.changed = self._changed
        return store

    def engine(self, **parts: Any) -> Engine:
        return self._kind(**parts, board=self._board)


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
        yield _SharedPlace(folder, asked, board, first.changed, kind)
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
