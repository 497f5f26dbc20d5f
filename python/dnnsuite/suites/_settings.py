# SPDX-License-Identifier: MIT
"""Settings of a suite: repeats, copies, isolation, limits; and shares of the machine for the copies of a job, with the
seed of each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from .._runs.words import ORDERS
from ..errors import InvalidArgument, did_you_mean
from ..pin import BACKENDS, LEVELS, Plan, Slot, Topology, make_plan
from ..profiler.monitor import check_monitor

if TYPE_CHECKING:
    from .entry import SuiteEntry

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


_USERS_WITHOUT_A_GPU = 2  # into as many shares the original cuts the CPUs of a machine without one


def plan_of(copies: str, device: str, topology: Topology) -> Plan:
    """One share per copy.

    Args:
        copies: `per-gpu`, a number, or `all` for one copy that has the whole machine. Without a GPU, `per-gpu` is
            two copies where there are two cores.

    Raises:
        InvalidArgument: `copies` is none of these.
        PinError: the machine cannot be divided so.
    """
    if device == "cpu":
        topology = replace(topology, gpus=())
    if copies == "all":
        return make_plan(topology, 1)
    if copies == "per-gpu":
        whole = make_plan(topology, 1)
        return make_plan(topology, "gpus" if topology.gpus else min(_USERS_WITHOUT_A_GPU, whole.all.cores))
    if not copies.isdecimal() or int(copies) < 1:
        raise InvalidArgument(f"--copies {copies}: expected per-gpu, all, or a number of at least 1")
    return make_plan(topology, int(copies), allow_smt_split=True)


def seed_of(run: int, copy: int | None, copies: int) -> int:
    """Return a seed by the original's rule: copy i of run r has r + 100 (i + 1), a job that has the machine r + the
    number of copies."""
    return run + copies if copy is None else run + 100 * (copy + 1)


def threads_of(slot: Slot) -> int:
    """Return the number of threads of a share: one per core, whose hardware threads share its units."""
    return max(1, slot.cores)


def processes_of(entry: SuiteEntry, plan: Plan, slot: Slot) -> int:
    """Processes of one copy: of a distributed job one per GPU, without GPUs as many as a student job has copies."""
    if not entry.distributed:
        return 1
    return max(1, len(slot.gpus) if entry.device != "cpu" else len(plan.slots))


def uuids_of(plan: Plan, slot: Slot) -> list[str]:
    """Ids of the GPUs of a share."""
    return [plan.gpus[i].uuid or str(i) for i in slot.gpus]
