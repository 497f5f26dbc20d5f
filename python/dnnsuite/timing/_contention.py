# SPDX-License-Identifier: MIT
"""Detection of blocks that a slow clock or other work disturbed: flagged and counted, never dropped."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .. import _C
from .._lazy import numpy as np
from ..errors import Error

if TYPE_CHECKING:
    import numpy.typing as npt


class Contention:
    """Probe of the machine before and after each block: ``with watch: run_block()``.

    The clock rate is that of a chain of dependent additions, a cycle each, in the calling thread (about 30 us): a core
    that is throttled, or shared with another process, adds more slowly. The better of a block's two readings counts,
    because one may be interrupted. The kernel adds involuntary context switches, the time that the hypervisor stole,
    and the pressure on the CPUs (PSI).

    A block is `throttled` when its clock is below `clock_share` of the best of all blocks (nvbench's 75 %), and
    `contended` when stolen time or pressure exceeds `busy_share` of its duration, or it was switched out more than
    `switches_per_s` times a second. Flags are settled when they are read, as the best clock may be seen last.
    """

    def __init__(self, *, clock_share: float = 0.75, busy_share: float = 0.05, switches_per_s: float = 100.0) -> None:
        self.clock_share, self.busy_share, self.switches_per_s = clock_share, busy_share, switches_per_s
        self._rows: list[tuple[float, ...]] = []
        self._before: tuple[float, _C.Disturbances] | None = None

    def __enter__(self) -> Contention:
        if self._before is not None:
            raise Error("a block has begun already: Contention does not nest")
        clock_ghz = _clock_ghz()
        self._before = (clock_ghz, _C.read_disturbances())
        return self

    def __exit__(self, *_: object) -> None:
        after = _C.read_disturbances()  # before the probe, which is no part of the block
        clock_ghz = _clock_ghz()
        assert self._before is not None
        (earlier_ghz, before), self._before = self._before, None
        self._rows.append(
            (
                before.t_ns,
                after.t_ns,
                max(earlier_ghz, clock_ghz),
                after.involuntary_switches - before.involuntary_switches,
                after.steal_s - before.steal_s,
                after.pressure_s - before.pressure_s,
            )
        )

    def __repr__(self) -> str:
        return f"Contention({len(self)} blocks)"

    def __len__(self) -> int:
        return len(self._rows)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return arrays with one entry for each block [n]: t0_ns, t1_ns, clock_ghz, involuntary_switches, throttled,
        contended, and steal_s and pressure_s, NaN if the kernel does not report them."""
        t0, t1, ghz, switches, steal, pressure = np.array(self._rows, dtype=np.float64).reshape(-1, 6).T
        times = np.array([row[:2] for row in self._rows], dtype=np.int64).reshape(-1, 2)
        seconds = np.maximum(t1 - t0, 1) * 1e-9
        busy = np.nan_to_num(np.fmax(steal, pressure)) > self.busy_share * seconds
        best = ghz.max(initial=0.0)
        return {
            "t0_ns": times[:, 0],
            "t1_ns": times[:, 1],
            "clock_ghz": ghz,
            "involuntary_switches": switches.astype(np.int64),
            "steal_s": steal,
            "pressure_s": pressure,
            "throttled": ghz < self.clock_share * best,
            "contended": busy | (switches > self.switches_per_s * seconds),
        }

    def notes(self) -> list[str]:
        """Remarks for a reader of the blocks: the number disturbed, and by what."""
        columns = self.columns()
        notes = []
        if throttled := int(columns["throttled"].sum()):
            low, best = columns["clock_ghz"].min(), columns["clock_ghz"].max()
            notes.append(
                f"{throttled} of {len(self)} blocks were throttled: the clock was down to {low:.2f} of {best:.2f} GHz"
            )
        if contended := int(columns["contended"].sum()):
            switches = columns["involuntary_switches"].sum()
            steal = sum(seconds for seconds in columns["steal_s"] if not math.isnan(seconds))
            notes.append(
                f"{contended} of {len(self)} blocks were contended: "
                f"{switches} involuntary switches, {steal:.3g} s stolen"
            )
        return notes


def _clock_ghz() -> float:
    """Measure the clock rate: the best of three short chains, as an interrupt hits at most one."""
    least_ns = min(_C.addition_ns(40_000) for _ in range(3))
    return 1 / least_ns if least_ns > 0 else math.nan
