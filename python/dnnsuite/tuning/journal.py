# SPDX-License-Identifier: MIT
"""Lines that several processes add to and all read: a file, or a table of a database.

The lines are those of Optuna's journal, so that its dashboard shows a search that is under way. They are read here and
not by Optuna's storages: a process hears of every trial of all others, and with 200 processes that takes their time.
What belongs together is added at once, under one lock and with one wait for the disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from .._runs.reading import Lines
from ..errors import InvalidArgument, Unavailable

_POLL_S = 0.003  # of a process that waits for the lock of the file
_WAIT_S = 60  # for the lock of a database that locks as a whole


class FileJournal:
    """Lines of a file, on a file system that all processes see; a reader sees whole ones, in one order for all."""

    def __init__(self, path: Path) -> None:
        import filelock

        self._lines, self._added = Lines(path), False
        self._lock = filelock.FileLock(path.with_name(f".{path.name}.lock"))  # ends with the process that holds it
        self.where = str(path)
        path.touch()

    def read(self) -> list[str]:
        """Return the lines that are new since the last call."""
        return self._lines.read()

    def add(self, lines: Sequence[str]) -> None:
        """Add lines, only within :meth:`alone`, in place of the half of one that a machine left that lost its power."""
        self._added = True
        self._lines.add(lines)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock of the file; the disk is waited for when others have it again."""
        self._added = False
        self._lock.acquire(poll_interval=_POLL_S)
        try:
            yield
        finally:
            self._lock.release()
            if self._added:
                with open(self._lines.path, "rb") as file:
                    os.fsync(file.fileno())


class TableJournal:
    """Lines of a sweep in the table `dnnsuite_lines` of a database; a row has those that were added together.

    Args:
        database: engine of SQLAlchemy, as :func:`database_of` returns it.
        name: name of the sweep.
    """

    def __init__(self, database: Any, name: str) -> None:
        self._engine, self._name, self._known, self._connection = database, name, 0, None
        _, self._sweeps, self._lines = _tables()
        self.where = database.url.render_as_string()
        _make(lambda connection: connection.execute(self._sweeps.insert().values(name=name, turn=0)), database)

    def read(self) -> list[str]:
        """Return the lines that are new since the last call."""
        new = self._lines.c.name == self._name, self._lines.c.number >= self._known
        asked = self._lines.select().where(*new).order_by(self._lines.c.number)
        if self._connection is not None:
            found = self._connection.execute(asked).all()
        else:
            with self._engine.connect() as connection:
                found = connection.execute(asked).all()
        self._known += len(found)
        return [line for _, _, text in found for line in text.splitlines()]

    def add(self, lines: Sequence[str]) -> None:
        """Add lines; others see them when :meth:`alone` ends."""
        assert self._connection is not None
        row = {"name": self._name, "number": self._known, "lines": "\n".join(lines)}
        self._connection.execute(self._lines.insert().values(row))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the sweep's row for the time of a transaction: every database has locks of rows, or of the whole."""
        with self._engine.begin() as connection:
            mine = self._sweeps.update().where(self._sweeps.c.name == self._name)
            connection.execute(mine.values(turn=self._sweeps.c.turn + 1))
            self._connection = connection
            try:
                yield
            finally:
                self._connection = None


Journal = FileJournal | TableJournal


def database_of(share: Any) -> Any:
    """Return the database of a URL, with the tables; None where `share` is True, for a journal in a file.

    Raises:
        Unavailable: SQLAlchemy is not installed, or the database does not answer.
        InvalidArgument: `share` is neither.
    """
    if share is True:
        return None
    if not isinstance(share, str) or "://" not in share:
        raise InvalidArgument(
            f"share is {share!r}: give True for a journal in out, or a database as 'postgresql://...'"
        )
    try:
        import sqlalchemy as sql
    except ImportError:
        raise Unavailable("SQLAlchemy is not installed", remedy="pip install 'dnnsuite[optuna]'") from None
    try:
        more = {"connect_args": {"timeout": _WAIT_S}} if share.startswith("sqlite") else {"pool_size": 1}
        engine = sql.create_engine(share, **more)
        _, *tables = _tables()
        for table in tables:
            _make(partial(table.create, checkfirst=True), engine)
        with engine.connect() as connection:
            for table in tables:
                connection.execute(table.select().limit(0))
        return engine
    except ModuleNotFoundError as error:  # of a driver, which the URL names or SQLAlchemy chooses
        raise Unavailable(
            f"the driver {error.name} for the database of share is not installed",
            remedy=f"pip install {error.name}, or name another in the URL, as in postgresql+psycopg2://...",
        ) from error
    except Exception as error:  # SQLAlchemy's, and of its drivers
        raise Unavailable(
            f"the database of share does not answer ({type(error).__name__})",
            remedy="check that its URL, for example postgresql://user:password@host/name, works from here",
        ) from error


def _make(what: Callable[[Any], Any], database: Any) -> None:
    """Make what others may make at the same time, no matter which process comes first."""
    import sqlalchemy as sql

    with suppress(sql.exc.IntegrityError, sql.exc.OperationalError, sql.exc.ProgrammingError), database.begin() as it:
        what(it)


def _tables() -> tuple[Any, Any, Any]:
    """Return (description, table of sweeps, table of lines)."""
    import sqlalchemy as sql

    found = sql.MetaData()
    sweeps = sql.Table("dnnsuite_sweeps", found, sql.Column("name", sql.String(80), primary_key=True),
                       sql.Column("turn", sql.BigInteger, nullable=False))  # fmt: skip
    lines = sql.Table("dnnsuite_lines", found, sql.Column("name", sql.String(80), primary_key=True),
                      sql.Column("number", sql.BigInteger, primary_key=True, autoincrement=False),
                      sql.Column("lines", sql.Text, nullable=False))  # fmt: skip
    return found, sweeps, lines
