# SPDX-License-Identifier: MIT
"""Parts of a run's record: moments, the machine, the device, figures, samples, the verdict."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ..errors import Error

Kind = Literal["workflow", "suite", "training", "trial", "profile", "throughput"]
Status = Literal["ok", "failed"]
KINDS: tuple[str, ...] = get_args(Kind)

WITH_LOADER = "throughput/with loader"  # name of a second rate: batches come from a loader of files
MOST = 2**62  # that a count or a seed can be; tables keep them in 64 bits
FASTEST = 1e30  # items per second; sums of larger figures would overflow

# Free-form parts of a record: whatever JSON can hold.
Json = Mapping[str, Any]


class BadRecord(Error):
    """Raised for a `run.json` that cannot be read; the message names the file and the defect."""


@dataclass(frozen=True)
class Moment:
    """A point in time, on the calendar and on the clock that samples use.

    Attributes:
        utc: ISO 8601 in UTC, to the millisecond.
        monotonic_ns: CLOCK_MONOTONIC of the same moment; comparable within one boot of one machine only.
    """

    utc: str
    monotonic_ns: int

    @classmethod
    def now(cls) -> Moment:
        """Return the present moment."""
        seconds, monotonic_ns = time.time(), time.monotonic_ns()
        whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        return cls(f"{whole}.{int(seconds * 1000) % 1000:03d}Z", monotonic_ns)


@dataclass(frozen=True)
class Machine:
    """The computer a run was on. `gpus` are names, one for each GPU; `driver` is NVIDIA's, empty without one; `system`
    has the rest, as "kernel: 6.1; microcode: 0x1"."""

    hostname: str = ""
    cpu_model: str = ""
    cpus: int = 0
    memory_bytes: int = 0
    gpus: tuple[str, ...] = ()
    driver: str = ""
    system: str = ""


@dataclass(frozen=True)
class Device:
    """Device of a run: `type` is cpu or cuda; `uuids` names the GPUs that the run could use."""

    type: str
    name: str = ""
    uuids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Isolation:
    """Separation of a run from others on the machine.

    Attributes:
        level: level obtained: cgroup, affinity or none; `unknown` in a record that does not say.
        asked: level asked for.
        details: means that make up the level, and why it is not a stronger one.
    """

    level: str = "unknown"
    asked: str = ""
    details: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Metric:
    """One figure of a run, with a 95 % interval where one is known.

    Attributes:
        name: name such as throughput or time/step.
        replica: number of the worker process; None for the whole run.
        definition: formula or method, where the name does not say it.
    """

    name: str
    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    replica: int | None = None
    definition: str = ""


@dataclass(frozen=True)
class Samples:
    """The raw observations: files beside `run.json`, one for each replica; times in nanoseconds of `clock`."""

    files: tuple[str, ...] = ("samples.csv",)
    columns: tuple[str, ...] = ("i", "epoch", "t_start_ns", "t_stop_ns", "items", "phase", "flag")
    clock: str = "CLOCK_MONOTONIC"


@dataclass(frozen=True)
class Verdict:
    """End of a run. `failure` is a class of :data:`dnnsuite._runs.failures.CLASSES`, None where all went well."""

    status: Status
    failure: str | None = None
    message: str = ""

    @property
    def ok(self) -> bool:
        """True if the run ended well."""
        return self.status == "ok"

    @classmethod
    def good(cls) -> Verdict:
        """Make the verdict of a run that ended well."""
        return cls("ok")

    @classmethod
    def failed(cls, failure: str, message: str) -> Verdict:
        """Make the verdict of a run that failed."""
        return cls("failed", failure, message)
