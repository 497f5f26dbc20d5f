# SPDX-License-Identifier: MIT
"""Peak memory of training B models, each way in a fresh process of its own."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from fresh_process import answer
from setting import Setting
from variants import VARIANTS
from workloads import WORKLOADS

from dnnsuite.profiler.memory import begin_peak, level

_STEPS = 24  # the heap may grow for a while after a step was recorded

Peak = dict[str, int]  # bytes, by what was counted


class Memory(NamedTuple):
    """Peak bytes above those of the imports: the array, B separate models in one process, one model in one process."""

    array: int
    separate: int
    one: int


def lines(workload: str, B: int, setting: Setting) -> list[str]:
    """One of the resident set on a CPU; of what torch's allocator gave out, and of what it held, on a GPU.

    Raises Error where a process ends without an answer, killed for its memory as a rule.
    """
    peaks = [
        peak_bytes(variant, workload, count, setting)
        for variant, count in (("dnnsuite", B), ("serial", B), ("serial", 1))
    ]
    return [line(workload, B, Memory(*(peak[what] for peak in peaks)), what) for what in peaks[0]]


def line(workload: str, B: int, peak: Memory, what: str) -> str:
    mib = 2**20
    return (
        f"{workload:>20}  B={B:<3} {what}: array {peak.array / mib:8.1f} MiB; "
        f"B models in one process {peak.separate / mib:8.1f} MiB (array is {peak.array / peak.separate:.3f} of it); "
        f"B processes of one {B * peak.one / mib:8.1f} MiB ({peak.array / (B * peak.one):.3f})"
    )


def peak_bytes(variant: str, workload: str, B: int, setting: Setting) -> Peak:
    """Peak bytes of training B models for some steps in a fresh process, above those of the imports."""
    what = f"{workload}, B={B}: the process that trains {variant}"
    found: Peak = answer(_train, variant, workload, B, setting, what=what)
    return found


def _train(connection: Any, variant: str, workload: str, B: int, setting: Setting) -> None:
    torch.set_num_threads(setting.threads)
    setting.enter()
    begin_peak(setting.device)
    before = level(setting.device)
    VARIANTS[variant](WORKLOADS[workload], B, setting)(_STEPS)
    after = level(setting.device)
    if setting.on_gpu:
        peak = {"allocated": after.peak - before.current, "reserved": after.peak_cached - before.current_cached}
    else:
        peak = {"resident": after.peak - before.current}
    connection.send(peak)
