# SPDX-License-Identifier: MIT
"""`ProfileData`: everything that a profile has observed, without the instruments that observed it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._lazy import pandas as pd

if TYPE_CHECKING:
    from ._overhead import Overhead
    from ._schedule import Schedule
    from ._windows import LoopStep
    from .catalogue import Absent
    from .phases import OptimizerSeen


@dataclass(frozen=True)
class ProfileData:
    """Observations of one loop, from which summary, record, files, roofline and advice are made.

    Attributes:
        metrics: words that the user asked for, as `timeline|power`.
        schedule: steps to observe; None for all of them.
        about: properties of the job: batch size, precision, items per step.
        ran: steps that the loop has made, observed or not.
        active: observed steps, in order.
        quiet: steps without instruments, after the loop's own warm-up; a rate is taken from these.
        tables: results by name; see :func:`dnnsuite.profiler.define`.
        instruments: a row per instrument: `instrument`, `state`, `remedy`.
        absent: instruments that this machine lacks.
        overhead: cost of the instruments per step; None where no step ran without them.
        loader_workers: `num_workers` of the DataLoader that the loop waited for; None where there was none.
        optimizer: the one that stepped last; None where none of torch.optim did.
        notes: remarks of the instruments, such as dropped records.
    """

    metrics: str | Sequence[str]
    schedule: Schedule | None
    about: dict[str, Any]
    ran: int
    active: list[LoopStep]
    quiet: list[LoopStep]
    tables: dict[str, pd.DataFrame]
    instruments: pd.DataFrame
    absent: list[Absent]
    overhead: Overhead | None
    loader_workers: int | None
    optimizer: OptimizerSeen | None
    notes: list[str]

    @property
    def wall_ns(self) -> int:
        """Wall time of the observed steps, ns."""
        return sum(step.t1_ns - step.t0_ns for step in self.active)
