# SPDX-License-Identifier: MIT
"""Storages of Optuna's over which processes share a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import InvalidArgument, Unavailable


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
