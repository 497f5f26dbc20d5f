# SPDX-License-Identifier: MIT
"""Settings of a suite: repeats, copies, isolation, limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from .._runs.words import ORDERS
from ..errors import InvalidArgument, did_you_mean
from ..pin import BACKENDS, LEVELS
from ..profiler.monitor import check_monitor

_MOST_REPEATS = 10_000
_SEEDS = 2**31  # a run and a copy add to the seed, and numpy takes 32 bits


@dataclass(frozen=True)
class SuiteSettings:
    """Settings of a suite.

    Attributes:
        repeat: number of runs of the suite.
        copies: copies of each job that run at the same time.
        pin: kind of pinning of the copies to CPUs.
        require: the weakest isolation to accept.
        timeout_s: largest duration of each job of a run, s.
        seed: seed of weights and data.
        order: order of the jobs.
        alone: run one copy only, in the share of the machine that it has among `copies`.
        monitor: sampling of the machine's load.
        cold: drop each job's own files from the page cache before it runs.
        loader: measure jobs whose batches are in memory a second time, with a loader in the timed loop.
    """

    repeat: int = 1
    copies: str = "per-gpu"
    pin: str = "auto"
    require: str | None = None
    timeout_s: float = 4 * 3600.0
    seed: int = 0
    order: str = "fixed"
    alone: bool = False
    monitor: str = "auto"
    cold: bool = False
    loader: bool = True

    @classmethod
    def of(cls, asked: Mapping[str, Any]) -> SuiteSettings:
        """Make settings from the options given; an option that is None keeps its default.

        Raises:
            InvalidArgument: a value is refused; the message says what is accepted.
        """
        names = {each.name for each in fields(cls)}
        made = cls(**{name: asked[name] for name in names if asked.get(name) is not None})
        if not 1 <= made.repeat <= _MOST_REPEATS:
            raise InvalidArgument(f"--repeats {made.repeat}: must be 1 to {_MOST_REPEATS:,}")
        if not 0 <= made.seed < _SEEDS:
            raise InvalidArgument(f"--seed {made.seed}: must be 0 to {_SEEDS - 1:,}")
        if not 0 < made.timeout_s < math.inf:
            raise InvalidArgument(f"--timeout {made.timeout_s}: must be a positive number of seconds")
        check_monitor(made.monitor)
        accepted = {"pin": BACKENDS, "order": ORDERS, "require": LEVELS}
        for name, values in accepted.items():
            value = getattr(made, name)
            if value is not None and value not in values:
                raise InvalidArgument(f"--{name} {value}: accepted: {', '.join(values)}{did_you_mean(value, values)}")
        return made

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain JSON values."""
        return asdict(self)
