# SPDX-License-Identifier: MIT
"""Entry points of the installed commands: Ctrl-C while Python imports them ends in one line instead of a traceback.

This module imports nothing that takes time, so that its handler of the signal is in place before the slow imports.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

__all__ = ["coreutil", "dcgm_parser", "dnnsuite", "fp32util", "mlbench_report", "timing_parser"]


def _command(module: str, name: str) -> Callable[..., None]:
    """Return a function that imports a command and runs it, on its arguments or on those of this process."""

    def run(*arguments: Any) -> None:
        with _ended_by_ctrl_c():
            command = getattr(importlib.import_module(f".{module}", __package__), name)
        command(*arguments)

    return run


dnnsuite = _command("app", "main")
coreutil = _command("import_", "coreutil")
fp32util = _command("import_", "fp32util")
mlbench_report = _command("report", "mlbench_report")
timing_parser = _command("hfta", "timing_parser")
dcgm_parser = _command("hfta", "dcgm_parser")


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
