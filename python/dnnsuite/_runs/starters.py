# SPDX-License-Identifier: MIT
"""Starters of workers: as processes of this machine, in shares of a partition, or each on a GPU or a part of the CPUs.

A process on a GPU sees that one alone, through CUDA_VISIBLE_DEVICES: neither a library nor a model's own `.cuda()` can
take another by mistake. One that works on a part of the CPUs may run on those cores alone.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from .. import host, pin
from .._C import parse_cpu_list
from ..errors import InvalidArgument, Unavailable
from ..pin import Partition, Running
from ..pin.errors import NotEnoughCpus
from .failures import KernelKill
from .limits import SHARES_VARIABLE

if TYPE_CHECKING:
    from .group import GroupOutcome


@dataclass(frozen=True)
class Ended:
    """The end of a process, and what it used."""

    returncode: int
    kernel_kill: KernelKill | None = None
    held: Mapping[str, Any] = field(default_factory=dict)


class Started(Protocol):
    """A process that leads a session of its own."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def terminate(self) -> None: ...
    def finish(self) -> Ended: ...


class Starter(Protocol):
    """Way to start the process of a worker."""

    def start(
        self, index: int, command: Sequence[str], variables: Mapping[str, str], files: tuple[int, int, int]
    ) -> Started: ...


def start_process(
    command: Sequence[str], variables: Mapping[str, str], files: tuple[int, int, int]
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own: Ctrl-C reaches only the parent, which ends the group."""
    stdin, stdout, stderr = files
    return subprocess.Popen(
        list(command), stdin=stdin, stdout=stdout, stderr=stderr, env=dict(variables), start_new_session=True
    )


class Direct:
    """Starter of workers as processes of this machine, each in a session of its own.

    Args:
        allowed_bytes: the most memory that each of them might have, to tell its own excess from that of others.
    """

    def __init__(self, allowed_bytes: int | None = None) -> None:
        self._allowed_bytes = allowed_bytes

    def start(
        self, index: int, command: Sequence[str], variables: Mapping[str, str], files: tuple[int, int, int]
    ) -> Started:
        """Start a process as :func:`start_process` does."""
        return _Direct(start_process(command, variables, files), self._allowed_bytes)


class _Direct:
    def __init__(self, process: subprocess.Popen[bytes], allowed_bytes: int | None) -> None:
        self._process, self._allowed_bytes = process, allowed_bytes
        self._peak_bytes = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def _wait(self, options: int) -> int | None:
        """Wait as Popen does, and note the peak memory of the process."""
        if self._process.returncode is None:
            pid, status, usage = os.wait4(self._process.pid, options)
            if pid:
                self._process.returncode = os.waitstatus_to_exitcode(status)
                self._peak_bytes = usage.ru_maxrss * 1024
        return self._process.returncode

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def finish(self) -> Ended:
        self._signal(signal.SIGKILL)
        code = self._wait(0)
        assert code is not None
        return Ended(code, KernelKill("", self._peak_bytes, self._allowed_bytes))

    def _signal(self, number: signal.Signals) -> None:
        # The group outlives its leader as long as a child of it runs. Its id is not reused before that, and a leader
        # that has been waited for and had no children gives ProcessLookupError.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


class InShares:
    """Starter of worker i in the i-th of some shares of a partition."""

    def __init__(self, partition: Partition, shares: Sequence[int | str]) -> None:
        self._partition, self._shares = partition, shares

    def start(
        self, index: int, command: Sequence[str], variables: Mapping[str, str], files: tuple[int, int, int]
    ) -> Started:
        """Start processes in a share, with the arguments of :meth:`Partition.start`."""
        share = self._shares[index]
        running = self._partition.start(share, command, env=variables, files=files)
        return _InShare(running, running.slot.memory_bytes)


class _InShare:
    def __init__(self, running: Running, allowed_bytes: int) -> None:
        self._running, self._allowed_bytes = running, allowed_bytes

    @property
    def pid(self) -> int:
        return self._running.pid

    def poll(self) -> int | None:
        return self._running.poll()

    def terminate(self) -> None:
        """Do nothing: a share ends everything in it at once, in `finish`."""

    def finish(self) -> Ended:
        outcome = self._running.finish(0)
        scope = (outcome.oom_scope or "unknown") if outcome.oom_killed else ""
        kill = KernelKill(scope, outcome.memory_peak_bytes or 0, self._allowed_bytes)
        return Ended(outcome.returncode, kill, outcome.to_dict())


_ACCEPTED = "'all', 'cuda:0,cuda:1', or 'cpu,cpu' for equal parts of the CPUs"


@dataclass(frozen=True)
class Share:
    """A device, or a part of the CPUs, for one process at a time.

    Attributes:
        name: name that a user reads: `cuda:1`, `cpu:0`.
        device: device as the share's own process sees it: cuda or cpu.
        threads: CPU threads of the process.
        variables: variables of its environment.
        cpus: CPUs that it may run on; empty for all.
        number: number of the GPU among those that this process sees; that of the part of the CPUs.
    """

    name: str
    device: str
    threads: int
    variables: Mapping[str, str] = field(default_factory=dict)
    cpus: tuple[int, ...] = ()
    number: int = 0


def shares_of(devices: str | Sequence[str], threads: int) -> list[Share]:
    """Resolve what a user gave as devices.

    Args:
        devices: names, or one text of them with commas: `all` GPUs that this process sees; `cuda:0`, `cuda:1`, ...;
            `cpu` as often as the CPUs are to be divided.
        threads: CPU threads of all processes together.

    Raises:
        InvalidArgument: a name is unknown or there twice, GPUs and CPUs are mixed, or there are fewer CPUs than parts.
        Unavailable: there is no such GPU.
    """
    parts = [devices] if isinstance(devices, str) else devices
    names = [name.strip() for part in parts for name in str(part).split(",") if name.strip()]
    if names == ["all"]:
        names = [f"cuda:{number}" for number in range(len(_visible_gpus()))]
        if not names:
            raise Unavailable(
                "devices=all: the NVIDIA driver shows no GPU", remedy="'cpu,cpu' gives each half of the CPUs a process"
            )
    kinds = {name.partition(":")[0] for name in names}
    if not names or not kinds <= {"cpu", "cuda"}:
        raise InvalidArgument(f"devices is {devices!r}: give {_ACCEPTED}")
    if len(kinds) > 1:
        raise InvalidArgument(f"devices is {devices!r}: GPUs and CPUs round otherwise, and a record has one kind")
    own = max(1, threads // len(names))
    return _parts_of_cpus(names, own) if kinds == {"cpu"} else [_gpu(name, names, own) for name in names]


def _visible_gpus() -> list[str]:
    """Return the entries of CUDA_VISIBLE_DEVICES that make this process's cuda:0, cuda:1, ... visible alone."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [entry.strip() for entry in given.split(",") if entry.strip() and entry.strip() != "-1"]
    return [str(number) for number in range(len(host.gpus()))]


def _gpu(name: str, names: Sequence[str], threads: int) -> Share:
    number, seen = name.removeprefix("cuda:"), _visible_gpus()
    if not number.isdigit() or names.count(name) > 1:
        why = "is given twice" if number.isdigit() else "has no number"
        raise InvalidArgument(f"device {name!r} {why}: give {_ACCEPTED}")
    if not host.torch_has_cuda() or int(number) >= len(seen):
        there = f"this process sees {len(seen)} GPUs" if host.torch_has_cuda() else "torch is a CPU build"
        raise Unavailable(f"device {name}: {there}", "", "`dnnsuite doctor` says what is missing")
    return Share(name, "cuda", threads, {"CUDA_VISIBLE_DEVICES": seen[int(number)]}, number=int(number))


def _parts_of_cpus(names: Sequence[str], threads: int) -> list[Share]:
    """Equal parts of whole cores: two processes on one core would wait for each other."""
    wanted = [f"cpu:{number}" for number in range(len(names))]
    if list(names) not in (["cpu"] * len(names), wanted):
        raise InvalidArgument(f"devices is {','.join(names)!r}: give {_ACCEPTED}")
    try:
        plan = pin.make_plan(pin.Topology.read(), len(names), reserve_memory=0, allow_smt_split=True)
    except NotEnoughCpus as error:
        raise InvalidArgument(f"devices is {','.join(names)!r}: {error}") from error
    return [
        Share(name, "cpu", min(threads, len(cpus)), cpus=cpus, number=number)
        for number, (name, cpus) in enumerate(
            zip(wanted, (tuple(parse_cpu_list(slot.cpus)) for slot in plan.slots), strict=True)
        )
    ]


class OnShares(Direct):
    """Starter of worker i on the i-th of some shares."""

    def __init__(self, shares: Sequence[Share]) -> None:
        super().__init__()
        self._shares = shares

    def start(
        self, index: int, command: Sequence[str], variables: Mapping[str, str], files: tuple[int, int, int]
    ) -> Started:
        """Start a process on a share; it inherits the CPUs of the thread that starts it."""
        share = self._shares[index]
        before = os.sched_getaffinity(0)
        if share.cpus:
            os.sched_setaffinity(0, share.cpus)
        try:
            own = {**share.variables, SHARES_VARIABLE: str(len(self._shares))}
            return super().start(index, command, {**variables, **own}, files)
        finally:
            os.sched_setaffinity(0, before)


def failed_share(outcome: GroupOutcome, shares: Sequence[Share]) -> tuple[Share, str] | None:
    """Return (the share whose worker failed first, the reason), of a group with a worker on each; None if none did."""
    if outcome.ok:
        return None
    found = re.match(r"(?:replica (\d+): )?(.*)", outcome.verdict.message, re.DOTALL)
    assert found is not None
    return shares[int(found[1] or 0)], found[2]
