# SPDX-License-Identifier: MIT
"""Entry points of the installed commands: Ctrl-C while Python imports them ends in one line instead of a traceback.

This module imports nothing that takes time, so that its handler of the signal is in place before the slow imports.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

__all__ = ["coreutil", "dcgm_parser", "dnnsuite", "fp32util", "mlbench_report", "timing_parser"]


def dnnsuite(*arguments: Any) -> None:
    """Run `dnnsuite`, on a list of arguments or on those of this process."""
    _imported("app", "main")(*arguments)


def coreutil() -> None:
    """Run `coreutil`."""
    _imported("import_", "coreutil")()


def fp32util() -> None:
    """Run `fp32util`."""
    _imported("import_", "fp32util")()


def mlbench_report() -> None:
    """Run `mlbench-report`."""
    _imported("report", "mlbench_report")()


def timing_parser() -> None:
    """Run `timing_parser`."""
    _imported("hfta", "timing_parser")()


def dcgm_parser() -> None:
    """Run `dcgm_parser`."""
    _imported("hfta", "dcgm_parser")()


def _imported(module: str, name: str) -> Any:
    """Import a command."""
    with _ended_by_ctrl_c():
        return getattr(importlib.import_module(f".{module}", __package__), name)


@contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end the process at once: nothing was begun that has to be cleaned up.

    A process that was started with SIGINT ignored, as by `nohup`, goes on ignoring it.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    print(f"dnnsuite: interrupted by {signal.Signals(number).name}", file=sys.stderr, flush=True)
    os._exit(128 + number)
