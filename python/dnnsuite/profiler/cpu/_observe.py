# SPDX-License-Identifier: MIT
"""Observation of steps by both CPU instruments."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

from ..._lazy import pandas as pd
from ._ops import OpsInstrument
from ._usage import CpuInstrument


class ObservedSteps(NamedTuple):
    """Tables `ops` and `steps_cpu` of the instruments, and CpuInstrument's notes on the machine."""

    ops: pd.DataFrame
    steps: pd.DataFrame
    notes: list[str]


def observe_steps(step: Callable[[], object], count: int) -> ObservedSteps:
    """Call `step`, which returns when its work is done, `count` times, and observe operators and CPU time."""
    ops, cpu = OpsInstrument(), CpuInstrument()
    with ExitStack() as undo:
        for instrument in (ops, cpu):
            undo.callback(instrument.close)
            instrument.open()
        for instrument in (ops, cpu):
            instrument.start()
        for index in range(count):
            step()
            for instrument in (ops, cpu):
                instrument.step(index)
        for instrument in (ops, cpu):
            instrument.stop()
    return ObservedSteps(ops.tables()["ops"], cpu.tables()["steps_cpu"], cpu.notes())
