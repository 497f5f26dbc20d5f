# SPDX-License-Identifier: MIT
"""Spans that the user names, and the window that nsys and ncu honour, as instruments of a profile."""

from __future__ import annotations

from .._lazy import pandas as pd
from ..timing import Spans
from .instrument import Instrument, define
from .window import Window

SPAN_COLUMNS = {
    "name": "the span's name",
    "step": "the step that was set when it began",
    "depth": "how many spans of the thread were open around it",
    "thread": "native id of the thread",
    "t0_ns": "begin, ns of CLOCK_MONOTONIC",
    "t1_ns": "end, ns of CLOCK_MONOTONIC",
    "gpu_ns": "from begin to end on the device's stream by CUDA events; NaN where none was recorded",
}


class SpansInstrument(Instrument):
    """The spans of a :class:`dnnsuite.timing.Spans` as table `spans` of a profile."""

    name = "spans"

    def __init__(self, spans: Spans) -> None:
        self._spans = spans

    def tables(self) -> dict[str, pd.DataFrame]:
        return {"spans": define(pd.DataFrame(self._spans.columns()), SPAN_COLUMNS)}

    def notes(self) -> list[str]:
        return self._spans.notes()


class WindowInstrument(Instrument):
    """Instrument that holds the window of external tools (:class:`Window`) open while one of the profile is."""

    name = "window"

    def __init__(self) -> None:
        self._window = Window()

    def start(self) -> None:
        self._window.open()

    def stop(self) -> None:
        self._window.close()

    def close(self) -> None:
        self._window.close()

    def tables(self) -> dict[str, pd.DataFrame]:
        return {}

    def notes(self) -> list[str]:
        return []  # on a machine without these tools their absence is no news
