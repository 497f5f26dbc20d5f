# SPDX-License-Identifier: MIT
"""Equal, isolated shares of a machine: the CPUs, memory and GPU of each share, and how they are enforced.

`with dnnsuite.pin(share=(0, 4)):` confines this process; :class:`Partition` runs commands in shares.
"""

import sys
import types
from contextlib import AbstractContextManager
from typing import Any

from ._groups import Leftover, clean, find
from ._partition import BACKENDS, LEVELS, Partition
from ._running import Outcome, Running
from ._scope import Pinned, scope
from ._topology import Topology
from .plan import Plan, Slot, make_plan

__all__ = [
    "BACKENDS", "LEVELS", "Leftover", "Outcome", "Partition", "Pinned", "Plan", "Running", "Slot", "Topology", "clean",
    "find", "make_plan", "scope",
]  # fmt: skip


class _Callable(types.ModuleType):
    """The module itself, called as a context manager."""

    def __call__(self, share: tuple[int, int], **options: Any) -> AbstractContextManager[Pinned]:
        return scope(share, **options)


sys.modules[__name__].__class__ = _Callable
