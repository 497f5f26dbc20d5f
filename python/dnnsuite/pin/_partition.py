# SPDX-License-Identifier: MIT
"""Run commands in the shares of a plan, isolated as well as the machine allows; the level obtained is reported."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from .. import _C
from .._C import Cgroup, GroupTree, format_cpu_list, parse_cpu_list
from ..errors import Error, check_choice
from ._groups import Guard, Holder, hold, overlapping, release, run_name
from ._running import Outcome, Running
from .errors import CgroupError, ControllerUnavailable, PinningTooWeak
from .plan import Plan, Slot, environment

LEVELS = ("none", "affinity", "cgroup")  # weakest first
BACKENDS = ("auto", *reversed(LEVELS))
_NEEDED = ("cpuset", "memory")
_WISHED = ("cpuset", "memory", "pids")
_MOST_PROCESSES = 32768  # of a share: a fork storm ends there, and no honest job comes near


class Partition:
    """The shares of a plan, ready to run commands. Use it as a context manager; on exit, everything that still runs in
    it is ended.

    Isolation has three levels: control groups, CPU affinity with memory limits, or none. :attr:`level` is the level
    obtained, and :meth:`record` describes it for a result.

    Args:
        plan: the shares, from :func:`make_plan`.
        backend: `auto` takes the best level available; `cgroup`, `affinity` or `none` takes that level, or raises an
            error.
        require: weakest level to accept.
        parent: control group in which to create the groups, for example "/a/b"; by default `$DNNSUITE_CGROUP_PARENT`,
            else the first one that allows it.

    Raises:
        PinningTooWeak: the level obtained is weaker than `require`.
        CgroupError: `backend="cgroup"` is not possible here; the subclass says why.

    >>> from dnnsuite import pin
    >>> plan = pin.make_plan(pin.Topology.read(), slots=1)
    >>> with pin.Partition(plan, backend="none") as shares:
    ...     shares.run(0, ["true"]).ok
    True
    """

    def __init__(
        self, plan: Plan, backend: str = "auto", require: str | None = None, parent: str | None = None
    ) -> None:
        check_choice("backend", backend, BACKENDS)
        check_choice("require", require or "none", LEVELS)
        self.plan, self.name = plan, run_name()
        self.reasons: list[str] = []
        self._parent = os.environ.get("DNNSUITE_CGROUP_PARENT", "") if parent is None else parent
        self._tree: GroupTree | None = None
        self._running: list[Running] = []
        self._made = 0
        self._held: set[int] = set()  # CPUs of the shares that were started
        self._met: dict[str, Holder] = {}  # other runs on the same CPUs, by name
        self._guard: Guard | None = Guard(self.name)
        try:
            self._controllers = self._climb(backend)
            self.level = self._level(backend)
            if require is not None and LEVELS.index(self.level) < LEVELS.index(require):
                raise PinningTooWeak(
                    f"pinning by {require} is required, and this machine grants {self.level}",
                    remedy="; ".join(self.reasons) or f"backend {backend} was requested",
                )
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"Partition({self.name!r}, {len(self.plan.slots)} shares, level={self.level!r})"

    def _climb(self, backend: str) -> dict[str, int]:
        """Try control groups; returns the controllers at hand, with the version of each."""
        if backend not in ("auto", "cgroup"):
            return {}
        try:
            self._tree = GroupTree("", self._parent, self.name, list(_WISHED))
            with_all = {c: folder["version"] for folder in self._tree.folders for c in folder["controllers"]}
            self._group(self.plan.slots[0], with_all).remove()  # limits that the kernel refuses show here, not in a run
        except CgroupError as error:
            if self._tree is not None:
                self._tree.close()
                self._tree = None
            if backend == "cgroup":
                raise
            self.reasons.append(str(error))
            return {}
        self.reasons += [f"{controller}: {why}" for controller, why in self._tree.missing.items()]
        short = [controller for controller in _NEEDED if controller not in with_all]
        if backend == "cgroup" and short:
            raise ControllerUnavailable("find", value=short[0], hint=self._tree.missing[short[0]])
        return with_all

    def _level(self, backend: str) -> str:
        if backend == "none":
            return "none"
        if all(controller in self._controllers for controller in _NEEDED):
            return "cgroup"
        allowed = os.sched_getaffinity(0)
        foreign = set(parse_cpu_list(self.plan.all.cpus)) - allowed
        if foreign:
            reason = f"the plan has CPUs that this process may not use: {sorted(foreign)}"
            if backend == "affinity":
                raise PinningTooWeak(reason, remedy="make the plan on this machine")
            self.reasons.append(reason)
            return "none"
        return "affinity"

    def _group(self, slot: Slot, controllers: Mapping[str, int]) -> Cgroup:
        assert self._tree is not None
        self._made += 1
        return self._tree.make(
            f"{slot.name}.{self._made}",
            cpus=slot.cpus if "cpuset" in controllers else None,
            mems=slot.mems if "cpuset" in controllers else None,
            memory_bytes=slot.memory_bytes if "memory" in controllers else None,
            processes=_MOST_PROCESSES if "pids" in controllers else None,
        )

    def start(
        self,
        which: int | str,
        arguments: Sequence[str],
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        files: tuple[int, int, int] = (-1, -1, -1),
        new_session: bool = True,
        close_files: bool = True,
    ) -> Running:
        """Start a command in a share and return without waiting.

        Args:
            which: number of the share, its name, or `all`.
            arguments: the command, as a list of words.
            cwd: working directory.
            new_session: start it in its own session, so that a signal reaches all its processes.
            close_files: do not pass this process's open files on to it.

        Raises:
            InvalidArgument: there is no such share.
            Error: the partition is closed.
            LaunchError: the command cannot be started.
        """
        slot = self.plan.slot(which)
        if self._guard is None:
            raise Error("the partition is closed")
        variables, kept = environment(self.plan, slot, os.environ if env is None else env, self.name)
        by_affinity = self.level != "none" and "cpuset" not in self._controllers
        limited = self.level != "none" and "memory" not in self._controllers
        cpus = parse_cpu_list(slot.cpus) if self.level != "none" else []
        group = self._group(slot, self._controllers) if self._controllers else None
        mems = parse_cpu_list(slot.mems) if by_affinity and len(parse_cpu_list(slot.mems)) == 1 else []
        process = _C.launch(
            list(arguments),
            [f"{name}={value}" for name, value in variables.items()],
            group,
            folder=str(cwd or ""),
            files=files,
            cpus=cpus,
            mems=mems,
            new_session=new_session,
            data_limit_bytes=slot.memory_bytes if limited else None,
            close_files=close_files,
        )
        if self.level != "none":
            self._held |= set(parse_cpu_list(slot.cpus))
            hold(self.name, format_cpu_list(sorted(self._held)))
            self.overlapping()
        watched = slot.memory_bytes if limited else None
        running = Running(
            process, group, f"{self.name}/{slot.name}", slot, self.level, watched_bytes=watched, kept=kept
        )
        self._running.append(running)
        return running

    def run(
        self, which: int | str, arguments: Sequence[str], timeout_s: float | None = None, **options: Any
    ) -> Outcome:
        """Start a command (:meth:`start`) and wait for its end; after `timeout_s` it is killed."""
        return self.start(which, arguments, **options).finish(timeout_s)

    def overlapping(self) -> list[Holder]:
        """List other runs that were seen on this run's CPUs; none of them, nor this one, has its cores to itself."""
        if self._held and self._guard is not None:
            met = overlapping(self.name, format_cpu_list(sorted(self._held)))
            self._met |= {each.name: each for each in met}
        return list(self._met.values())

    @staticmethod
    def finish(running: Iterable[Running], timeout_s: float | None = None) -> list[Outcome]:
        """Wait for several commands, at most `timeout_s` in total."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        return [each.finish(None if deadline is None else max(0.0, deadline - time.monotonic())) for each in running]

    def record(self) -> dict[str, Any]:
        """Return the isolation for the record of a run: level, how CPUs and memory are confined, and the hash of the
        plan.
        """
        cpuset, memory = self._controllers.get("cpuset"), self._controllers.get("memory")
        none = self.level == "none"
        return {
            "level": self.level,
            "cpus": f"cgroup v{cpuset}" if cpuset else "none" if none else "affinity",
            "memory": f"cgroup v{memory}" if memory else "none" if none else "RLIMIT_DATA and a watch on use",
            "controllers": dict(self._controllers),
            "reasons": list(self.reasons),
            "plan": self.plan.hash,
            "overlaps": [str(each) for each in self.overlapping()],
            "comparable": self.plan.comparable and self.level == "cgroup" and not self._met,
        }

    def close(self) -> None:
        """End all commands and remove the groups. May be called again."""
        try:
            for running in self._running:
                running.close()
            self._running.clear()
            release(self.name)
            if self._tree is not None:
                self._tree.close()
                self._tree = None
        finally:
            if self._guard is not None:
                self._guard.release()
                self._guard = None

    def __enter__(self) -> Partition:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Error:
            if error is None:  # what went wrong in the body must not be hidden by what went wrong in cleaning up
                raise
