# SPDX-License-Identifier: MIT
"""Fastest choices measured on this machine, kept between processes."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import threading
from pathlib import Path
from typing import Any

from . import host
from ._files import OutputError, cache_folder, write_json


class TuningTable:
    """Choices by key, in memory and, where the folder can be written, in one JSON file.

    A file that cannot be read or written costs a measurement, never a failure.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._choices: dict[str, Any] = self._read()

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def get(self, key: str) -> Any:
        """Return the choice for `key`, or None."""
        return self._choices.get(key)

    def put(self, key: str, choice: Any) -> None:
        """Keep `choice`, and take over what other processes have written meanwhile."""
        with self._lock:
            self._choices = {**self._read(), **self._choices, key: choice}
            with contextlib.suppress(OSError, OutputError):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                write_json(self.path, self._choices)


@functools.cache
def table() -> TuningTable:
    """Open the table of this machine: one file per processor, torch version and instruction set."""
    import torch

    machine = f"{host.cpu_model()}|{torch.__version__}|{torch.backends.cpu.get_cpu_capability()}"
    return TuningTable(cache_folder() / f"tune-{hashlib.sha256(machine.encode()).hexdigest()[:12]}.json")


def key(*parts: Any) -> str:
    """Make a table key of readable parts."""
    return json.dumps(parts, default=str)
