# SPDX-License-Identifier: MIT
"""Answers of trials: which of a few ways was the fastest on this machine, kept between processes.

A busy machine may have given an answer, so none is kept for ever. It has the seconds of each way, from the fastest run
to the slowest, and the time of its trial. It counts for a week where even the slowest run of the way that was taken
took less than the fastest run of every other, and else for an hour; then the ways are tried again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import host
from .._files import OutputError, cache_folder, write_json

_CLEAR_S, _UNCLEAR_S = 7 * 24 * 3600.0, 3600.0  # for so long an answer counts


@dataclasses.dataclass(frozen=True)
class Answer:
    """Answer of a trial.

    Args:
        way: the one that was taken, as JSON has it.
        seconds: fastest and slowest run of each way that was timed, by its name.
        left: names of ways that were not tried for want of time.
        at: time of the trial, in seconds since 1970.
    """

    way: Any
    seconds: dict[str, tuple[float, float]]
    left: tuple[str, ...] = ()
    at: float = dataclasses.field(default_factory=time.time)

    def counts(self, now: float) -> bool:
        """Return True if the ways need not be tried again yet."""
        _, slowest = self.seconds.get(str(self.way), (0.0, math.inf))
        clear = slowest < min((s for way, (s, _) in self.seconds.items() if way != str(self.way)), default=math.inf)
        return 0 <= now - self.at < (_CLEAR_S if clear else _UNCLEAR_S)


class Table:
    """Answers by key, in memory and, where the folder can be written, in one JSON file.

    A file that cannot be read or written costs a trial, never a failure.
    """

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self.path, self._now = path, now
        self._lock = threading.Lock()
        self._answers = self._read()

    def _read(self) -> dict[str, Answer]:
        try:
            content = json.loads(self.path.read_text())
            return {key: answer for key, value in content.items() if (answer := _answer_of(value)) is not None}
        except (OSError, ValueError, AttributeError):
            return {}

    def get(self, key: str) -> Answer | None:
        """Return the answer for `key` if there is one that counts."""
        answer = self._answers.get(key)
        return answer if answer is not None and answer.counts(self._now()) else None

    def put(self, key: str, answer: Answer) -> None:
        """Keep `answer`, and take over what other processes have found meanwhile."""
        with self._lock:
            found = self._read()
            newer = {k: one for k, one in self._answers.items() if k not in found or found[k].at < one.at}
            self._answers = {**found, **newer, key: answer}
            with contextlib.suppress(OSError, OutputError):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                write_json(self.path, {key: vars(answer) for key, answer in self._answers.items()})


def _answer_of(value: Any) -> Answer | None:
    """Return an answer as it lies in a file; None for what is none."""
    try:
        seconds = {way: (float(least), float(most)) for way, (least, most) in value["seconds"].items()}
        return Answer(value["way"], seconds, tuple(value["left"]), float(value["at"]))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


@functools.cache
def table() -> Table:
    """Open the table of this machine: one file per processor, torch version and instruction set."""
    import torch

    machine = f"{host.cpu_model()}|{torch.__version__}|{torch.backends.cpu.get_cpu_capability()}"
    return Table(cache_folder() / f"ways-{hashlib.sha256(machine.encode()).hexdigest()[:12]}.json")


def key_of(*parts: Any) -> str:
    """Make a table's key of readable parts: what is computed, its shapes, and all else that its speed depends on."""
    return json.dumps(parts, default=str)
