# SPDX-License-Identifier: MIT
"""Parts of an iteration, timed and shown to NVIDIA's tools in one epoch; without cost in the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from .._files import write_text
from ..profiler import nvtx, window
from ..timing import Spans

__all__ = ["PHASES", "PHASES_FILE", "Phases"]

PHASES = ("data", "zero_grad", "forward/loss/backward", "optimizer.step")
PHASES_FILE = "phases.csv"

_NOTHING = nullcontext()
_SPANS_PER_STEP = 8


class Phases:
    """Ranges PROFILE > epoch N > iteration i > the four `PHASES`, with the names of SC20's tutorial.

    On a GPU the times are those of the device, by events: nothing is synchronised within an iteration.

    Attributes:
        data, zero_grad, compute, update: context managers around each part; they do nothing but in a profiled epoch.

    Args:
        steps: of the profiled epoch; 0 if none is profiled.
        cuda: time on the device.
    """

    def __init__(self, steps: int, cuda: bool = False) -> None:
        self._spans: Spans | None = None
        if steps:
            pairs = _SPANS_PER_STEP * steps if cuda else 0
            self._spans = Spans(_SPANS_PER_STEP * steps, nvtx=nvtx.available(), cuda_pairs=pairs)
        self._on = False
        self._set()

    def _set(self) -> None:
        of = [self._spans.span(name) if self._on and self._spans is not None else _NOTHING for name in PHASES]
        self.data: Any = of[0]
        self.zero_grad: Any = of[1]
        self.compute: Any = of[2]
        self.update: Any = of[3]

    @contextmanager
    def profiled(self, epoch: int, on: bool) -> Iterator[None]:
        """Context manager: one epoch (from 1), which tools see if `on`."""
        if not on or self._spans is None:
            yield
            return
        with ExitStack() as ranges:
            ranges.enter_context(window.Window())
            ranges.enter_context(_range("PROFILE"))
            ranges.enter_context(_range(f"epoch {epoch}"))
            self._on = True
            self._set()
            try:
                yield
            finally:
                self._on = False
                self._set()

    @property
    def on(self) -> bool:
        """True within a profiled epoch."""
        return self._on

    def iteration(self, i: int) -> Any:
        """Context manager: the range of one iteration."""
        if not self._on or self._spans is None:
            return _NOTHING
        self._spans.step = i
        return _range(f"iteration {i}")

    def seconds(self) -> dict[str, list[float]]:
        """Seconds of each phase in each profiled iteration; empty where none was profiled."""
        if self._spans is None or not len(self._spans):
            return {}
        columns = self._spans.columns()
        took_ns = columns.get("gpu_ns", columns["t1_ns"] - columns["t0_ns"])
        return {name: (took_ns[columns["name"] == name] * 1e-9).tolist() for name in PHASES}

    def save(self, folder: Path) -> None:
        """Write `phases.csv`: a row per phase and iteration, in milliseconds."""
        rows = [
            f"{name},{i},{took * 1e3:.6g}" for name, all_s in self.seconds().items() for i, took in enumerate(all_s)
        ]
        if rows:
            write_text(folder / PHASES_FILE, "\n".join(["phase,iteration,ms", *rows, ""]))


def _range(name: str) -> Any:
    return nvtx.range(name) if nvtx.available() else _NOTHING
