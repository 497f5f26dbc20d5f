# SPDX-License-Identifier: MIT
"""CUPTI's activity records as an instrument."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ... import _C, host
from ..._lazy import pandas as pd
from ...errors import Error, InvalidArgument, Unavailable
from ...timing import now_ns
from ..instrument import SessionInstrument
from .tables import TABLES, join_columns, save_records, tables_of

_REMEDY = "pip install 'dnnsuite[counters]', or set CUDA_HOME to a toolkit of CUDA 13"
_RECLOCKED = (
    "kernels were stamped by CLOCK_REALTIME, though CUPTI took CLOCK_MONOTONIC: their times were moved, to within the "
    "reading of both clocks"
)
_FAR_NS = 10**9  # two clocks are far further apart, or the same
_STRAY_NS = 1_000_000  # what CUPTI's mapping of clocks may be off by


def nvtx_environment() -> dict[str, str]:
    """Return environment variables with which the NVTX markers of a new process reach CUPTI and the table `markers`.

    NVTX looks for its listener at the first marker of a process, so they must be set before it.

    Raises:
        Unavailable: there is no CUPTI.
    """
    host.register_vendor_folders()
    return {"NVTX_INJECTION64_PATH": _C.library_path("libcupti.so.13", _REMEDY)}


def variables_for_markers() -> dict[str, str]:
    """Return :func:`nvtx_environment` for a process to profile; empty if there is no GPU, or already a listener."""
    if "NVTX_INJECTION64_PATH" in os.environ or not host.gpus():
        return {}
    try:
        return nvtx_environment()
    except Unavailable:
        return {}


def _on_our_clock(part: Any, window: tuple[int, int]) -> bool:
    """Move the GPU's times from CLOCK_REALTIME to CLOCK_MONOTONIC if the kernels show that they are in the former."""
    kernels = part["tables"]["kernels"]
    if not len(kernels["t0_ns"]):
        return False
    middle = int(kernels["t0_ns"][len(kernels["t0_ns"]) // 2])
    lead_ns = time.time_ns() - now_ns()
    if window[0] - _FAR_NS < middle < window[1] + _FAR_NS:
        return False
    if not window[0] - _FAR_NS < middle - lead_ns < window[1] + _FAR_NS:
        return False
    for name in ("kernels", "memops", "graphs"):
        for column in ("t0_ns", "t1_ns"):
            part["tables"][name][column] = part["tables"][name][column] - lead_ns
    return True


def _of_no_launch(part: dict[str, Any]) -> int:
    """Count kernels of graphs whose number is that of another call than a graph's launch."""
    kernels, api = part["tables"]["kernels"], part["tables"]["api"]
    of_graphs = kernels["correlation"][kernels["graph_id"] != 0]
    mine = np.isin(api["correlation"], of_graphs)
    calls = zip(*(api[name][mine].tolist() for name in ("correlation", "domain", "callback")), strict=True)
    others = [number for number, *call in calls if "GraphLaunch" not in str(_C.cupti_function_name(*call))]
    return int(np.isin(of_graphs, others).sum())


class ActivityInstrument(SessionInstrument):
    """Kernels, copies and host calls of this process on its GPUs, with a resolution of nanoseconds.

    Kernels still run concurrently. Opening and closing a window waits for all devices. Only one instrument can be open
    at a time, and opening is refused while another profiler holds CUPTI. In a forked child it does nothing. After it is
    closed, CUPTI stays attached to the process, which may slow down later steps. If a process first uses torch.profiler
    while this instrument is open, torch.profiler gets no GPU records, then or later: use it before, or in another
    process.

    Args:
        tables: tables to record, from :data:`TABLES`. `graphs` records CUDA graphs as a whole instead of the kernels in
            them, which costs less; it is the only one that must be named.

    Raises:
        InvalidArgument: a table is unknown.
    """

    name = "activity"

    def __init__(self, tables: Sequence[str] = TABLES[:-1]) -> None:
        unknown = [table for table in tables if table not in TABLES]
        if unknown or not tables:
            raise InvalidArgument(f"tables={list(tables)}: expected some of {', '.join(TABLES)}")
        self._wanted = list(dict.fromkeys(tables))
        self._parts: list[dict[str, Any]] = []
        self._losses: dict[str, int] = {}
        self._reclocked = False
        self.windows: list[tuple[int, int]] = []
        """(begin, end) of each window in ns, after and before which the devices were waited for."""

    def open(self) -> None:
        """Acquire CUPTI.

        Raises:
            Unavailable: there is no driver, GPU, CUPTI or permission, or another profiler holds CUPTI.
            Error: another instrument is open in this process.
        """
        if self._session is None:
            host.register_vendor_folders()
            self._session = _C.ActivitySession(self._wanted)

    def start(self) -> None:
        """Wait for the devices, then begin to record."""
        self._opened().start()

    def stop(self) -> None:
        """Wait for the devices, and keep what was recorded.

        Raises:
            Error: kernels were requested, and none was recorded. Either nothing ran on a GPU, or CUPTI has stopped
                recording, as it does after some uses of CUDA graphs. An empty table would then be wrong.
        """
        session = self._opened()
        session.stop()
        part = session.take()
        window = session.window_ns
        self._reclocked |= _on_our_clock(part, window)
        self._losses = session.losses
        self._parts.append(part)
        self.windows.append(window)
        if "kernels" in self._wanted and not len(part["tables"]["kernels"]["t0_ns"]):
            launched = len(part["tables"]["api"]["t0_ns"])
            raise Error(
                f"no kernel was recorded in a window of {(window[1] - window[0]) / 1e9:.3f} s with {launched} CUDA "
                "calls: either nothing ran on a GPU, or CUPTI has stopped recording; profile in a new process"
            )

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return all of :data:`TABLES`; those not recorded are empty. `attrs["windows"]` is :attr:`windows`."""
        columns, strings = join_columns(self._parts or [_C.decode_activity(b"")])
        found = tables_of(columns, strings, _C.cupti_function_name)
        for table in found.values():
            table.attrs["windows"] = [list(window) for window in self.windows]
        return found

    def save(self, path: str | Path) -> None:
        """Write the records of all windows to a file for :func:`load_records`, about 100 bytes per record.

        Raises:
            OutputError: the file cannot be written.
        """
        parts = self._parts or [_C.decode_activity(b"")]
        calls = {
            call
            for part in parts
            for call in zip(
                part["tables"]["api"]["domain"].tolist(), part["tables"]["api"]["callback"].tolist(), strict=True
            )
        }
        save_records(Path(path), parts, self.windows, {call: _C.cupti_function_name(*call) for call in sorted(calls)})

    def notes(self) -> list[str]:
        """Return remarks on records that were lost or left out, and on times that are impossible."""
        lost = self._losses
        counts = {key: sum(part["counts"][key] for part in self._parts) for key in ("incomplete", "unknown", "damaged")}
        said = [
            (lost.get("dropped_records", 0), "records dropped by CUPTI, which had no room for them"),
            (
                lost.get("rejected_buffers", 0),
                "buffers refused to CUPTI at the limit of memory: their records are lost",
            ),
            (lost.get("failed_buffers", 0), "buffers lost for want of memory"),
            (counts["damaged"], "buffers of which a part could not be read"),
            (counts["incomplete"], "records without times left out"),
            (counts["unknown"], "records of kinds that were not requested left out"),
            (
                sum(map(_of_no_launch, self._parts)),
                "kernels of CUDA graphs name a call that launched no graph, as CUPTI before 13.1.1 may: the code that "
                "they are said to belong to is not theirs",
            ),
            (self._strays(), "kernels lie outside of their window: their times are not to be trusted"),
        ]
        reclocked = [_RECLOCKED] if self._reclocked else []
        return [f"{count} {what}" for count, what in said if count] + reclocked

    def _strays(self) -> int:
        strays = 0
        for (t0_ns, t1_ns), part in zip(self.windows, self._parts, strict=True):
            kernels = part["tables"]["kernels"]
            strays += int((kernels["t0_ns"] < t0_ns - _STRAY_NS).sum())
            strays += int((kernels["t1_ns"] > t1_ns + _STRAY_NS).sum())
        return strays
