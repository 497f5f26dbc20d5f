# SPDX-License-Identifier: MIT
"""Place of a sweep: no directory, one of its own, or one that it shares with other processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .._runs.folder import SWEEP_FILE, PlanFolder, joined
from ..errors import InvalidArgument
from .algorithms import Algorithm, OptunaSearch
from .board import Board
from .board_storage import journal, require_optuna, storage_of
from .engine import Engine
from .shared import SharedEngine, SharedStore
from .store import Asked, Store

__all__ = ["Place", "shared_place"]

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

    def __init__(self, folder: PlanFolder, asked: Asked, board: Board, changed: Mapping[str, str]) -> None:
        super().__init__(folder, asked)
        self._shared, self._board, self._changed = folder, board, changed

    def store(self, job: str, mode: str, device: str, keeps_states: bool) -> Store:
        store = SharedStore(self._shared, job, mode, device, keeps_states, worker=self._board.worker)
        store.changed = self._changed
        return store

    def engine(self, **parts: Any) -> Engine:
        return SharedEngine(**parts, board=self._board)


@contextmanager
def shared_place(out: Any, share: Any, algorithm: Algorithm, asked: Asked, maximize: bool) -> Iterator[Place]:
    """Join the processes that do a sweep in the directory `out` together; the first one makes it.

    Raises:
        InvalidArgument: `out` is missing or of another sweep, or the algorithm cannot be shared so.
        Unavailable: Optuna is not installed, or its storage does not answer.
    """
    if out in (None, True, False):
        raise InvalidArgument("share needs a directory that all processes see: name it with out")
    if isinstance(algorithm, OptunaSearch):
        raise InvalidArgument(
            "OptunaSearch is shared by its study: give each process a study in one storage, an out of its own, and no "
            "share"
        )
    require_optuna()
    root = Path(out)
    storage = None if share is True else storage_of(share)
    with joined(root, SWEEP_FILE) as folder:
        first = Store(folder, "", "", "cpu", False)
        first.begin(asked)
        storage = storage or journal(root / _JOURNAL)
    board = Board(storage, f"dnnsuite-{folder.id}", maximize)
    try:
        yield _SharedPlace(folder, asked, board, first.changed)
    finally:
        board.close()
