# SPDX-License-Identifier: MIT
"""GPU counters as a time series, sampled by the hardware without disturbing the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..._lazy import numpy as np
from ..._lazy import pandas as pd
from ...errors import InvalidArgument
from ..instrument import SessionInstrument, define
from .catalogue import CUPTI, Backend, unit_of
from .roles import Selection, remarks, select

SHORTEST_INTERVAL_S = 1e-6
_CLOCK_HZ = 1e9  # what cycles are reckoned at where there is no trigger by time; the true clock varies
_BY_CYCLES = ("TU", "GA100")  # chips without a trigger by time
_KEEPS_OLDEST = ("TU",)  # chips that cannot overwrite their oldest samples
_NEAR_NS = 60 * 10**9

_DEFINITIONS = {
    "t_ns": "middle of the sample, CLOCK_MONOTONIC in ns",
    "t0_ns": "begin of the sample, CLOCK_MONOTONIC in ns",
    "t1_ns": "end of the sample, CLOCK_MONOTONIC in ns",
    "source": "pm: sampled by the GPU's performance monitors, of all processes on it",
    "device": "the GPU's number",
    "name": "role, or the CUPTI name of a metric requested by name",
    "value": "in `unit`, over the sample",
    "unit": "unit of the value; % is of the peak over all cycles",
}


class PmSamplingInstrument(SessionInstrument):
    """Samples of a whole device, including other processes on it.

    Args:
        metrics: the preset "timeline", or full metric names that fit into one pass.
        device: number of the GPU, in CUDA's order.
        interval_s: time between samples, s. Chips that cannot be triggered by time (Turing, GA100) use cycles of a
            clock near 1 GHz instead.
        buffer_bytes: GPU memory for samples that have not been fetched yet.

    Raises:
        InvalidArgument: the interval is below 1 µs.
    """

    name = "pm_sampling"

    def __init__(
        self,
        metrics: str | Sequence[str] = "timeline",
        device: int = 0,
        interval_s: float = 1e-3,
        buffer_bytes: int = 64 << 20,
        backend: Backend = CUPTI,
    ) -> None:
        if not interval_s >= SHORTEST_INTERVAL_S:
            raise InvalidArgument(f"interval_s {interval_s}; accepted: from {SHORTEST_INTERVAL_S} s, e.g. 0.001")
        self._metrics, self._device, self._interval_s = metrics, device, interval_s
        self._buffer_bytes, self._backend = buffer_bytes, backend
        self._running = False
        self._windows: list[dict[str, Any]] = []
        self.selection: Selection | None = None

    def open(self) -> None:
        """Acquire the GPU's sampler.

        Raises:
            Unavailable: there is no driver, GPU, CUPTI or permission, or another profiler holds the GPU.
            InvalidArgument: the metrics do not fit into one pass.
        """
        if self._session is not None:
            return
        device = self._backend.device(self._device)
        selection = select(self._metrics, device.chip, collection="sampling")
        cycles = device.chip.startswith(_BY_CYCLES)
        self._session = self._backend.sampled(
            device,
            selection.metrics,
            interval=round(self._interval_s * (_CLOCK_HZ if cycles else 1e9)),
            interval_in_cycles=cycles,
            keep_latest=not device.chip.startswith(_KEEPS_OLDEST),
            hardware_buffer_bytes=self._buffer_bytes,
        )
        self.selection = selection

    def start(self) -> None:
        """Open a window: sampling begins, and a thread fetches the samples."""
        self._opened().start()
        self._running = True

    def stop(self) -> None:
        """Close the window. All its samples have been fetched on return."""
        session = self._opened()
        if self._running:
            self._running = False
            session.stop()
        self._windows += session.take()

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return the table `samples`, with a row per sample and metric."""
        frames = []
        for window in self._windows:
            assert self.selection is not None
            times = np.asarray([window["t0_ns"], window["t1_ns"]], dtype=np.int64)
            times += anchor(int(times[0][0]), window["realtime_ns"], window["monotonic_ns"])[0] if times.size else 0
            values = np.asarray(window["values"], dtype=np.float64).reshape(-1, len(self.selection.metrics))
            for column, metric in enumerate(self.selection.metrics):
                frames.append(
                    pd.DataFrame(
                        {
                            "t_ns": times[0] + (times[1] - times[0]) // 2,
                            "t0_ns": times[0],
                            "t1_ns": times[1],
                            "source": "pm",
                            "device": self._device,
                            "name": self.selection.roles.get(metric, metric),
                            "value": values[:, column],
                            "unit": unit_of(metric, self.selection.chip, "sampling"),
                        }
                    )
                )
        empty = pd.DataFrame(columns=list(_DEFINITIONS))
        table = pd.concat(frames, ignore_index=True) if frames else empty
        return {"samples": define(table.sort_values("t_ns", kind="stable", ignore_index=True), _DEFINITIONS)}

    def notes(self) -> list[str]:
        """Return remarks on samples lost to overflow, metrics left out, and the conversion of times to this machine's
        clock."""
        lines = []
        overflows = sum(window["overflows"] for window in self._windows)
        if overflows:
            lines.append(
                f"pm_sampling: the GPU's buffer ran over {overflows} times, samples are lost; "
                "raise interval_s or buffer_bytes"
            )
        first = [(window, window["t0_ns"][0]) for window in self._windows if window["t0_ns"]]
        if any(not anchor(t0, window["realtime_ns"], window["monotonic_ns"])[1] for window, t0 in first):
            lines.append("pm_sampling: the GPU's clock is not this machine's: times are aligned by the window's start")
        if len(first) < len(self._windows):
            lines.append("pm_sampling: a window without samples: it was shorter than the interval, or none came")
        if self.selection:
            lines += [f"pm_sampling: {line}" for line in remarks(self.selection)]
        lines.append("pm_sampling: samples are of the whole GPU, other processes included")
        return lines


def anchor(first_ns: int, realtime_ns: int, monotonic_ns: int) -> tuple[int, bool]:
    """Return the offset from a GPU's timestamps to CLOCK_MONOTONIC, and True if it is exact.

    Timestamps near CLOCK_MONOTONIC at the start are in it, as CUPTI uses the clock registered with it for samples too.
    Those near CLOCK_REALTIME are in that clock, CUPTI's default. Any others are of a clock in the GPU, and the first of
    them is placed at the start.
    """
    if abs(first_ns - monotonic_ns) < _NEAR_NS:
        return 0, True
    if abs(first_ns - realtime_ns) < _NEAR_NS:
        return monotonic_ns - realtime_ns, True
    return monotonic_ns - first_ns, False
