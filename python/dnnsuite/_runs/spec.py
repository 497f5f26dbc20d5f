# SPDX-License-Identifier: MIT
"""Specification of one worker's work, as a file that its process reads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .._files import read_json, write_json

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
