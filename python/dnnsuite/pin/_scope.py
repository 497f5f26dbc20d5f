# SPDX-License-Identifier: MIT
"""`with dnnsuite.pin(share=(0, 4)):` confines this process to a share until the end of the block."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from .._C import GroupTree, parse_cpu_list, read_hierarchies
from ..errors import InvalidArgument, check_choice
from ._groups import run_name
from ._topology import Topology
from .errors import CgroupError, PinningTooWeak
from .plan import THREADS, Plan, Slot, make_plan

_BACKENDS = ("auto", "cgroup", "affinity")


class Pinned:
    """Confinement of this process: its share, and the level (`cgroup` or `affinity`, with the reasons)."""

    def __init__(self, plan: Plan, slot: Slot) -> None:
        self.plan, self.slot = plan, slot
        self.level = "affinity"
        self.reasons: list[str] = []

    def __repr__(self) -> str:
        why = f": {'; '.join(self.reasons)}" if self.reasons else ""
        return f"Pinned({self.slot!r}, by {self.level}{why})"


@contextmanager
def scope(
    share: tuple[int, int], backend: str = "auto", require: str | None = None, parent: str | None = None, **options: Any
) -> Iterator[Pinned]:
    """Confine this process, with all its threads, to one of N equal shares of the machine.

    The CPU limit applies at once. Memory that the process already uses stays charged to its old group; to limit all
    memory, start a command with :class:`Partition` instead. At the end, affinity, groups, environment variables for
    threads and torch's number of threads (if torch is imported) are restored.

    Args:
        share: (i, N), share i of N, counted from 0.
        backend: `auto`, `cgroup` or `affinity`.
        require: weakest isolation to accept; with `cgroup`, anything weaker is an error.
        parent: see :class:`Partition`.
        options: options of :func:`make_plan`.

    Raises:
        PinningTooWeak: `require` is not met.
        CgroupError: `backend="cgroup"` is not available.
    """
    check_choice("backend", backend, _BACKENDS)
    if not isinstance(share, (tuple, list)) or len(share) != 2 or any(type(each) is not int for each in share):
        raise InvalidArgument(f"share {share!r}: expected (i, N), two whole numbers: the i-th of N shares")
    index, number = share
    plan = make_plan(Topology.read(), number, **options)
    if not 0 <= index < number:
        raise InvalidArgument(f"share ({index}, {number}): the first must be 0 to {number - 1}")
    pinned = Pinned(plan, plan.slots[index])
    with ExitStack() as undo:
        _confine(pinned, backend, parent, undo)
        if require == "cgroup" and pinned.level != "cgroup":
            raise PinningTooWeak(
                f"pinning by cgroup is required, and this machine grants {pinned.level}",
                remedy="; ".join(pinned.reasons),
            )
        _set_threads(pinned.slot, undo)
        yield pinned


def _confine(pinned: Pinned, backend: str, parent: str | None, undo: ExitStack) -> None:
    _restore_affinity(undo)  # last of all: leaving a cpuset may widen what each thread may use
    if backend != "affinity":
        try:
            _enter_group(pinned, os.environ.get("DNNSUITE_CGROUP_PARENT", "") if parent is None else parent, undo)
        except CgroupError as error:
            if backend == "cgroup":
                raise
            pinned.reasons.append(str(error))
    cpus = parse_cpu_list(pinned.slot.cpus)
    for thread in _threads():
        os.sched_setaffinity(thread, cpus)


def _threads() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc/self/task")]


def _restore_affinity(undo: ExitStack) -> None:
    before = {thread: os.sched_getaffinity(thread) for thread in _threads()}
    own = os.sched_getaffinity(0)

    def restore() -> None:
        for thread in _threads():
            os.sched_setaffinity(thread, before.get(thread, own))

    undo.callback(restore)


def _enter_group(pinned: Pinned, parent: str, undo: ExitStack) -> None:
    with ExitStack() as mine:
        tree = GroupTree("", parent, run_name(), ["cpuset", "memory"])
        mine.callback(tree.close)
        held = {controller for folder in tree.folders for controller in folder["controllers"]}
        pinned.reasons += [f"{controller}: {why}" for controller, why in tree.missing.items()]
        if not held:
            return
        slot = pinned.slot
        group = tree.make(
            slot.name,
            cpus=slot.cpus if "cpuset" in held else None,
            mems=slot.mems if "cpuset" in held else None,
            memory_bytes=slot.memory_bytes if "memory" in held else None,
        )
        mine.callback(group.remove)
        before = _own_groups()

        def go_back() -> None:
            for folder, now in zip(before, _own_groups(), strict=False):
                if folder != now:
                    Path(folder, "cgroup.procs").write_text(str(os.getpid()))

        mine.callback(go_back)
        group.attach(os.getpid())
        if held >= {"cpuset", "memory"}:
            pinned.level = "cgroup"
        undo.push(mine.pop_all())


def _own_groups() -> list[str]:
    return [hierarchy["own"] for hierarchy in read_hierarchies("") if hierarchy["own"]]


def _set_threads(slot: Slot, undo: ExitStack) -> None:
    for name in (*THREADS, "DNNSUITE_SLOT"):
        undo.callback(_put_back, name, os.environ.get(name))
        os.environ[name] = slot.name if name == "DNNSUITE_SLOT" else str(slot.cores)
    torch = sys.modules.get("torch")
    if torch is not None:  # it counted the CPUs when it was imported
        undo.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(slot.cores)


def _put_back(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
