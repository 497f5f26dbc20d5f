# SPDX-License-Identifier: MIT
"""Shares of a machine that work side by side, a process each: its GPUs, or parts of its CPUs.

A process on a GPU sees that one alone, through CUDA_VISIBLE_DEVICES: neither a library nor a model's own `.cuda()` can
take another by mistake. One that works on a part of the CPUs may run on those cores alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .. import host, pin
from .._C import parse_cpu_list
from ..errors import InvalidArgument, Unavailable
from ..pin.errors import NotEnoughCpus
from .group import GroupOutcome
from .limits import SHARES_VARIABLE
from .starters import Direct, Started

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
    names = _names(devices)
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


def _names(devices: str | Sequence[str]) -> list[str]:
    parts = [devices] if isinstance(devices, str) else devices
    return [name.strip() for part in parts for name in str(part).split(",") if name.strip()]


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
    """Starter of worker i on the i-th of some shares.

    Args:
        allowed_bytes: the most memory that each of them might have, as of :class:`Direct`.
    """

    def __init__(self, shares: Sequence[Share], allowed_bytes: int | None = None) -> None:
        super().__init__(allowed_bytes)
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
