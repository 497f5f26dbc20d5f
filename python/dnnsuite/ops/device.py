# SPDX-License-Identifier: MIT
"""Choice between code that is fast on a CPU and code that is fast on a GPU.

Results are equal up to rounding, so a CPU can stand in for a GPU: tests run a GPU's code on it, against the same
oracles, and count the operators of a step.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

_standing_in = False


def on_gpu(x: Tensor) -> bool:
    """Return True if a tensor is on a GPU, or on a CPU that stands in for one."""
    return x.is_cuda or (_standing_in and x.is_cpu)


def on_cpu(x: Tensor) -> bool:
    """Return True if a tensor is on a CPU that does not stand in for a GPU."""
    return x.is_cpu and not _standing_in


def triton_runs(launch: Callable[[], object]) -> bool:
    """Return True if Triton is here and has what it compiles a kernel with, which `launch` starts."""
    if importlib.util.find_spec("triton") is None:
        return False
    try:
        launch()
    except Exception:  # of many kinds: no compiler of C, no driver that is new enough
        return False
    return True


def numbers(values: Sequence[float], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Make a line of a few numbers on a device: beside a CPU's by filling, for a copy from the host's memory makes it
    wait, which no CUDA graph may record."""
    if device.type == "cpu" and not _standing_in:
        return torch.tensor(values, dtype=dtype)
    if len(set(values)) == 1:
        return torch.full((len(values),), values[0], dtype=dtype, device=device)
    return torch.cat([torch.full((1,), value, dtype=dtype, device=device) for value in values])


@contextlib.contextmanager
def cpu_for_gpu() -> Iterator[None]:
    """Context manager: let the CPU stand in for a GPU, in all threads. For tests and for counting operators."""
    global _standing_in
    before, _standing_in = _standing_in, True
    try:
        yield
    finally:
        _standing_in = before
