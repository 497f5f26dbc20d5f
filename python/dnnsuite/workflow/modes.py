# SPDX-License-Identifier: MIT
"""Modes, the ways in which B models share a device: a table. Sweep, planner and plots are written once over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

from .._runs.record_parts import MODES as NAMES
from ..errors import InvalidArgument, Unavailable, did_you_mean
from .devices import MIG_LIMIT, Environment, mig_instances, mig_unavailable, mps_daemon, mps_unavailable, whole_gpu
from .partial import number_of

Placement = Callable[[int], AbstractContextManager[list[Environment]]]


@dataclass(frozen=True)
class Mode:
    """A way to distribute B models over processes.

    Attributes:
        name: name in commands and tables.
        description: one line about the mode.
        processes: function from B to the number of worker processes.
        width: function from B to the number of models in the fused array of each process; 0 means plain torch.
        place: functions by device, each from the number of processes to a context manager that yields the environment
            of each process and restores the device.
        unavailable: function from a device to the reason why the mode cannot be used there, or None.
        limit_B: largest number of models, whatever the memory, or None.
        changes_machine: True if it changes the GPU for all its users; it must then be requested by name.
    """

    name: str
    description: str
    processes: Callable[[int], int]
    width: Callable[[int], int]
    place: dict[str, Placement]
    unavailable: Callable[[str], str | None]
    limit_B: int | None = None
    changes_machine: bool = False


@contextmanager
def _nothing(n: int) -> Iterator[list[Environment]]:
    """Context manager for a device that needs no preparation."""
    yield [{} for _ in range(n)]


def _one(B: int) -> int:
    return 1


def _all(B: int) -> int:
    return B


def _plain(B: int) -> int:
    return 0


def _anywhere(device: str) -> str | None:
    return None


_SHARED: dict[str, Placement] = {"cpu": _nothing, "cuda": whole_gpu}

_KNOWN = {
    mode.name: mode
    for mode in (
        Mode("serial", "one plain model, one process", _one, _plain, _SHARED, _anywhere, limit_B=1),
        Mode("concurrent", "B plain models, a process each", _all, _plain, _SHARED, _anywhere),
        Mode("mps", "concurrent, through NVIDIA's MPS daemon", _all, _plain, {"cuda": mps_daemon},
             mps_unavailable, changes_machine=True),
        Mode("mig", "concurrent, each on a MIG instance of its own", _all, _plain, {"cuda": mig_instances},
             mig_unavailable, limit_B=MIG_LIMIT, changes_machine=True),
        Mode("hfta", "one array of B models, one process", _one, _all, _SHARED, _anywhere),
    )
}  # fmt: skip
MODES: dict[str, Mode] = {name: _KNOWN[name] for name in NAMES}
DEFAULT = [name for name, mode in MODES.items() if not mode.changes_machine]  # where no modes are named


def get(name: str) -> Mode:
    """Find a mode by its name.

    Raises:
        InvalidArgument: there is none; the message lists them.
    """
    if (unfused := number_of(name)) is not None:
        description = f"one array of B models with {unfused} of their units unfused, one process"
        return replace(MODES["hfta"], name=name, description=description)
    if name not in MODES:
        raise InvalidArgument(f"unknown mode {name!r}; modes are {', '.join(MODES)}{did_you_mean(name, MODES)}")
    return MODES[name]


def unavailable(names: Sequence[str], device: str) -> dict[str, str]:
    """Reasons by mode of those that cannot be used on `device`.

    Raises:
        Unavailable: none of them can; the message has the reasons.
    """
    reasons = {name: reason for name in names if (reason := get(name).unavailable(device))}
    if len(reasons) == len(names):
        raise Unavailable("; ".join(f"{name}: {reason}" for name, reason in reasons.items()))
    return reasons
