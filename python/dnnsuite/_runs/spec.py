# SPDX-License-Identifier: MIT
"""Specification of one worker's work, as a file that its process reads; and the modules of a user's own jobs."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .._files import read_json, write_json
from ..errors import Error, InvalidArgument

SPEC_FILE = "spec.json"
RESULT_FILE = "result.json"


@dataclass(frozen=True)
class WorkerSpec:
    """Specification of one worker's work.

    Attributes:
        task: `module:function` that does the work; see :mod:`dnnsuite._runs.worker`.
        directory: existing folder of its files, its own.
        job, config: a registered job and the fields of its `JobConfig`.
        details: entries that the task alone reads.
        plugins: modules that register a user's own jobs.
        sys_path: further folders to import them from.
        memory_limit_bytes: most memory that it may reserve; None for no limit.
        processes: number of processes that torchrun starts; 1 is the worker alone.
        parent_pid: the process that it must not outlive; filled in when it is started.
    """

    task: str
    directory: str
    job: str
    config: Mapping[str, Any]
    details: Mapping[str, Any] = field(default_factory=dict)
    plugins: tuple[str, ...] = ()
    sys_path: tuple[str, ...] = ()
    memory_limit_bytes: int | None = None
    processes: int = 1
    parent_pid: int = 0

    @property
    def folder(self) -> Path:
        """`directory` as a path."""
        return Path(self.directory)

    def write(self) -> Path:
        """Write the specification into its directory; return the file.

        Raises:
            OutputError: it cannot be written.
        """
        path = self.folder / SPEC_FILE
        write_json(path, {**asdict(self), "parent_pid": self.parent_pid or os.getpid()})
        return path

    @classmethod
    def read(cls, path: Path) -> WorkerSpec:
        """Read what :meth:`write` wrote."""
        values = read_json(path)
        return cls(**{**values, "plugins": tuple(values["plugins"]), "sys_path": tuple(values["sys_path"])})


_files: set[str] = set()  # of the modules that were imported


def import_plugins(names: Iterable[str], paths: Iterable[str] = ()) -> None:
    """Import the modules that register a user's own jobs.

    Args:
        names: modules to import.
        paths: folders to look in beside `sys.path`.

    Raises:
        InvalidArgument: a module cannot be imported, or its code raises; the message has the file and line.
    """
    sys.path.extend(path for path in paths if path not in sys.path)
    for name in names:
        path = Path(name)
        if path.suffix == ".py" or len(path.parts) > 1:
            folder = "" if path.parent == Path() else f", with PYTHONPATH={path.parent}"
            raise InvalidArgument(f"--plugin {name}: expected the name of a module: --plugin {path.stem}{folder}")
        try:
            _files.add(str(importlib.import_module(name).__file__))
        except Error:
            raise
        except ImportError as error:
            raise InvalidArgument(f"--plugin {name}: {error}") from error
        except (Exception, SystemExit) as error:  # of the user's code
            raise InvalidArgument(f"--plugin {name}: {told(error)}") from error


def said_of_plugin(error: BaseException) -> str:
    """Return an error of a plugin's code in one line, with the place there; "" where none of it was running."""
    frames = traceback.extract_tb(error.__traceback__)
    place = next((i for i in reversed(range(len(frames))) if frames[i].filename in _files), None)
    return "" if place is None else told(error, place)


def told(error: BaseException, place: int = -1) -> str:
    """Return an error in one line, with the file and line of the frame at `place` of its traceback."""
    frame = traceback.extract_tb(error.__traceback__)[place]
    where = "" if isinstance(error, SyntaxError) else f" ({Path(frame.filename).name}, line {frame.lineno})"
    return f"{type(error).__name__}: {' '.join(str(error).split())}{where}"
