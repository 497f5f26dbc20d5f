# SPDX-License-Identifier: MIT
"""Ranges for NVIDIA's tools (nsys, ncu, CUPTI), in the domain `dnnsuite`.

Names are registered strings and the payload is the step, so that `nsys profile --capture-range=nvtx
--nvtx-capture='window@dnnsuite'` needs no setting in the environment, and `ncu --nvtx --nvtx-include 'dnnsuite@step/'`
picks the steps. Without a tool a range costs what an empty `with` block does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from .. import _C
from ..errors import Unavailable
from ..timing import decorated

Function = TypeVar("Function", bound=Callable[..., Any])


class Range(_C.NvtxRange):
    """Named range, made once by :func:`range`: use `with step:`, `@step`, or `step.push(i)` and `step.pop()`.

    `with` and `@` give `self.step` as payload. Ranges nest within their thread.
    """

    __slots__ = ()

    def __call__(self, function: Function) -> Function:
        """Wrap `function` so that each call is a range. Raises InvalidArgument for a coroutine or a generator."""
        return decorated(self, function)


@functools.cache
def range(name: str) -> Range:
    """Return the range of this name; the same object each time.

    Raises Unavailable if the build has no NVTX headers.
    """
    made: Range = _C.make_nvtx_range(Range, name)
    return made


def mark(name: str, step: int = 0) -> None:
    """Mark an instant on this thread's track. Raises Unavailable as :func:`range`."""
    _C.nvtx_mark(name, step)


@functools.cache
def available() -> bool:
    """Return True if this build has NVTX."""
    try:
        range("window")
    except Unavailable:
        return False
    return True
