# SPDX-License-Identifier: MIT
"""Peak memory of training B models, each way in a fresh process of its own."""

from __future__ import annotations

import multiprocessing
from typing import Any, NamedTuple

import torch
from variants import VARIANTS
from workloads import WORKLOADS

from dnnsuite.errors import Error
from dnnsuite.profiler.memory._process import begin_peak, level

_STEPS = 24  # the heap may grow for a while after a step was recorded


class Memory(NamedTuple):
    """Peak bytes above those of the imports: the array, B separate models in one process, one model in one process."""

    array: int
    separate: int
    one: int


def measured(workload: str, B: int) -> Memory:
    """Raises Error where a process ends without an answer, killed for its memory as a rule."""
    return Memory(
        peak_bytes("dnnsuite", workload, B),
        peak_bytes("serial", workload, B),
        peak_bytes("serial", workload, 1),
    )


def line(workload: str, B: int, peak: Memory) -> str:
    mib = 2**20
    return (
        f"{workload:>20}  B={B:<3} array {peak.array / mib:8.1f} MiB; "
        f"B models in one process {peak.separate / mib:8.1f} MiB (array is {peak.array / peak.separate:.3f} of it); "
        f"B processes of one {B * peak.one / mib:8.1f} MiB ({peak.array / (B * peak.one):.3f})"
    )


def peak_bytes(variant: str, workload: str, B: int) -> int:
    """Of training B models for some steps in a fresh process, above those of the imports."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_train, args=(theirs, variant, workload, B))
    process.start()
    theirs.close()
    try:
        return int(mine.recv())
    except EOFError:
        raise Error(f"{workload}, B={B}: the process that trains {variant} ended without an answer") from None
    finally:
        process.join()


def _train(connection: Any, variant: str, workload: str, B: int) -> None:
    torch.set_num_threads(1)
    begin_peak("cpu")
    before = level("cpu").current
    VARIANTS[variant](WORKLOADS[workload], B, 1)(_STEPS)
    connection.send(level("cpu").peak - before)
