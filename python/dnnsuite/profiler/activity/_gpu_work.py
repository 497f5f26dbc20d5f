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
from .tables import TABLES, join_columns, save_records, tables_of

_REMEDY = "pip install 'dnnsuite[counters]', or set CUDA_HOME to a toolkit of CUDA 13"
_RECLOCKED = (
    "kernels were stamped by CLOCK_REALTIME, though CUPTI took CLOCK_MONOTONIC: their times were moved, to within the "
    "reading of both clocks"
)
_FAR_NS = 10**9  # two clocks are far further apart, or the same
_STRAY_NS = 1_000_000  # what CUPTI's mapping of clocks may be off by


def nvtx_environment() -> dict[str, str]:
    """Return the environment variables with which NVTX markers of a new process reach CUPTI and the table `markers`.

    NVTX looks for its listener at the first marker of a process, so they must be set before it.

    Raises:
        Unavailable: there is no CUPTI.
    """
    host.register_vendor_folders()
    return {"NVTX_INJECTION64_PATH": _C.library_path("libcupti.so.13", _REMEDY)}


def variables_for_markers() -> dict[str, str]:
    """Return :func:`nvtx_environment` for a process to profile; nothing if there is no GPU, or a listener already."""
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


class ActivityInstrument:
    """Kernels, copies and host calls of this process's GPUs, with a precision of ns.

    Kernels stay concurrent. The window opens and closes after a wait for all devices. One at a time: opening is refused
    while another profiler holds CUPTI. It does nothing in a forked child. CUPTI stays attached to the process when it
    is closed, which may slow later steps. A torch.profiler that is first used in the process while this holds CUPTI
    gets no GPU records, then or later: use it before, or in another process.

    Args:
        tables: tables to record, out of :data:`TABLES`. `graphs` records CUDA graphs as a whole, instead of the
            kernels in them, and costs less; it is the only one that is off unless named.

    Raises:
        InvalidArgument: an unknown table.
    """

    name = "activity"

    def __init__(self, tables: Sequence[str] = TABLES[:-1]) -> None:
        unknown = [table for table in tables if table not in TABLES]
        if unknown or not tables:
            raise InvalidArgument(f"tables={list(tables)}: expected some of {', '.join(TABLES)}")
        self._wanted = list(dict.fromkeys(tables))
        self._session: Any = None
        self._parts: list[dict[str, Any]] = []
        self._losses: dict[str, int] = {}
        self._reclocked = False
        self.windows: list[tuple[int, int]] = []
        """(begin, end) of each window in ns, after and before which the devices were waited for."""

    def open(self) -> None:
        """Take CUPTI.

        Raises:
            Unavailable: no driver, no GPU, no CUPTI, no permission, or another profiler holds it.
            Error: another one is open in this process.
        """
        if self._session is None:
            host.register_vendor_folders()
            self._session = _C.ActivitySession(self._wanted)

    def start(self) -> None:
        """Wait for the devices, then record."""
        self._opened().start()

    def step(self, index: int) -> None:
        """Do nothing: records carry their times."""

    def stop(self) -> None:
        """Wait for the devices, and keep what was recorded.

        Raises:
            Error: kernels were asked for and none was recorded. Either nothing ran on a GPU, or CUPTI has stopped
                recording, as it does after some uses of CUDA graphs; an empty table would be wrong then.
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
        """All of :data:`TABLES`; those that were not recorded are empty. `attrs["windows"]`: :attr:`windows`."""
        columns, strings = join_columns(self._parts or [_C.decode_activity(b"")])
        found = tables_of(columns, strings, _C.cupti_function_name)
        for table in found.values():
            table.attrs["windows"] = [list(window) for window in self.windows]
        return found

    def save(self, path: str | Path) -> None:
        """Write the records of all windows, for :func:`load_records`; about 100 bytes for each.

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
        """Remarks: records that were lost or left out, and times that cannot be."""
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

    def close(self) -> None:
        """Release CUPTI. Tables stay."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _opened(self) -> Any:
        if self._session is None:
            raise Error("the activity instrument is not open: call open() first")
        return self._session

    def _strays(self) -> int:
        strays = 0
        for (t0_ns, t1_ns), part in zip(self.windows, self._parts, strict=True):
            kernels = part["tables"]["kernels"]
            strays += int((kernels["t0_ns"] < t0_ns - _STRAY_NS).sum())
            strays += int((kernels["t1_ns"] > t1_ns + _STRAY_NS).sum())
        return strays
