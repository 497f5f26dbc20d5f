# SPDX-License-Identifier: MIT
"""Line of the user's code that runs now, for the reasons why a step is not captured."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch

from ..._code import loops_in

_PACKAGE = Path(__file__).parents[2]
_END = str(
    _PACKAGE / "_step" / "shard.py"
)  # it calls the loss function: what is further out is no part of the step
_TORCH = str(Path(torch.__file__).parent)
_NOT_THE_USERS = (
    _TORCH,
    *(str(_PACKAGE / room) for room in ("_fuse", "_step", "nn", "ops", "optim", "_torch")),
    "<",  # frozen modules, generated code
)


_kinds: dict[str, int] = {}  # by file: a hash of code takes longer than the whole search


def _kind(file: str) -> int:
    """Classify a file: 1 for a user's code, 0 for this package's or torch's, -1 for the end of the step."""
    found = _kinds.get(file)
    if found is None:
        found = _kinds[file] = -1 if file == _END else int(not file.startswith(_NOT_THE_USERS))
    return found


def user_place() -> str:
    """` at model.py:12 in forward`: the innermost line of user's code in this step; empty in backward or update."""
    frame: Any = sys._getframe(1)
    known = _kinds.get  # called for each operator of a recorded step, under some twenty frames
    while frame is not None:
        file = frame.f_code.co_filename
        kind = known(file)
        if kind is None:
            kind = _kind(file)
        if kind:
            return _described(frame) if kind == 1 else ""
        frame = frame.f_back
    return ""


def in_a_loop() -> bool:
    """Return True if the innermost line of user's code in this step lies in a loop of its function."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        kind = _kind(frame.f_code.co_filename)
        if kind == 1:
            return any(begin <= frame.f_lasti <= end for begin, end in loops_in(frame.f_code))
        if kind == -1:
            return False
        frame = frame.f_back
    return False


def called_by_user() -> str | None:
    """Name the line of the user's code that has called torch; None if other code has."""
    frame: Any = sys._getframe(2)
    while frame is not None and (
        frame.f_code.co_filename.startswith(_TORCH) or frame.f_code.co_name == "__torch_function__"
    ):  # the latter hands on what others call
        frame = frame.f_back
    return _described(frame) if frame is not None and _kind(frame.f_code.co_filename) == 1 else None


def _described(frame: Any) -> str:
    return f" at {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} in {frame.f_code.co_name}"
