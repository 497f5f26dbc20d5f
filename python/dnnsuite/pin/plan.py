# SPDX-License-Identifier: MIT
"""Equal shares of a machine: whole cores near their GPUs with a part of the memory, and the environment variables of
their processes.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from .._C import format_cpu_list
from ..errors import InvalidArgument
from ._groups import RUN_VARIABLE
from ._topology import Core, Gpu, Topology, deal_cores, usable_cores
from .errors import NotEnoughCpus, NotEnoughMemory

ALL = "all"  # the name of the share that is everything
_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True)
class Slot:
    """One share of a machine.

    Attributes:
        cpus: its CPUs, and `mems` its memory nodes, as the kernel writes lists ("0-3,8").
        memory_bytes: its memory.
        cores: number of whole cores, which have `threads` hardware threads together.
        gpus: indices of its GPUs.
        crosses_numa: True if its CPUs are on several NUMA nodes.
        l3_count: number of level-3 caches that its CPUs use.
    """

    name: str
    cpus: str
    mems: str
    memory_bytes: int
    cores: int
    threads: int
    gpus: tuple[int, ...] = ()
    crosses_numa: bool = False
    l3_count: int = 0


@dataclass(frozen=True)
class Plan:
    """The shares of a machine. The same machine and arguments give the same plan, and the same :attr:`hash`.

    Attributes:
        slots: the shares; `all` is the whole machine as one share.
        gpus: the GPUs that they divide.
        locality: nearness of a share's cores to its GPU, and `smt` the use of hardware threads, in the words
            of `dnnsuite pin plan`.
        reserve_bytes: memory that stays free for the machine.
        comparable: True if measurements in the shares may be compared; otherwise `reasons` says why not.
        unused_cpus: CPUs in no share, as a list.
        notes: remarks for the reader.
    """

    slots: tuple[Slot, ...]
    all: Slot
    gpus: tuple[Gpu, ...]
    locality: str
    smt: str
    reserve_bytes: int
    comparable: bool
    reasons: tuple[str, ...] = ()
    unused_cpus: str = ""
    notes: tuple[str, ...] = ()

    @cached_property
    def hash(self) -> str:
        """16 hexadecimal digits that identify the plan. Do not compare measurements from different plans."""
        text = json.dumps([asdict(slot) for slot in (*self.slots, self.all)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def slot(self, which: int | str) -> Slot:
        """Return a share by its number or its name (`all` is the whole machine).

        Raises:
            InvalidArgument: there is no such share.
        """
        if isinstance(which, int) and 0 <= which < len(self.slots):
            return self.slots[which]
        for slot in (*self.slots, self.all):
            if slot.name == which:
                return slot
        raise InvalidArgument(f"no share {which!r}; there are 0 to {len(self.slots) - 1} and 'all'")

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {**asdict(self), "hash": self.hash}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Plan:
        """Read what :meth:`to_dict` returned.

        Raises:
            InvalidArgument: it is not a plan, or it was edited after it was made.
        """
        try:
            fields = {key: value[key] for key in cls.__dataclass_fields__}
            plan = cls(
                **{
                    **fields,
                    "slots": tuple(map(_slot, value["slots"])),
                    "all": _slot(value["all"]),
                    "gpus": tuple(Gpu(**gpu) for gpu in value["gpus"]),
                    "reasons": tuple(value["reasons"]),
                    "notes": tuple(value["notes"]),
                }
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidArgument(f"no plan: {type(error).__name__}: {error}") from error
        if value.get("hash") != plan.hash:
            raise InvalidArgument(f"the plan's hash is {plan.hash}, not {value.get('hash')}: was it edited?")
        return plan


def _slot(value: Mapping[str, Any]) -> Slot:
    return Slot(**{**value, "gpus": tuple(value["gpus"])})


def make_plan(
    topology: Topology,
    slots: int | str = "gpus",
    locality: str = "auto",
    smt: str = "on",
    reserve_memory: str | int = "auto",
    allow_smt_split: bool = False,
) -> Plan:
    """Divide a machine into equal shares.

    Args:
        topology: the machine, as `Topology.read()` finds it.
        slots: number of shares; `gpus` for one per GPU (a single share on a machine without GPUs).
        locality: `strict` uses only cores of the GPU's NUMA node and leaves others idle; `prefer` uses all cores, near
            ones first; `auto` is strict if that leaves no core idle.
        smt: `off` uses one thread of each core.
        reserve_memory: memory to leave to the machine: a number of bytes, "4G", "5%", or "auto" for the larger of 5 %
            and 512 MiB.
        allow_smt_split: give threads of one core to different shares if there are fewer cores than shares.

    Raises:
        NotEnoughCpus, SmtSplit, NotEnoughMemory, HeterogeneousCpus: the machine cannot be divided into such shares.
        InvalidArgument: an argument has another value.

    >>> from dnnsuite import pin
    >>> plan = pin.make_plan(pin.Topology.read(), slots=1)
    >>> len(plan.slots), plan.slots[0].name
    (1, 'student0')
    """
    count = _count(slots, topology)
    found, split = usable_cores(topology, smt, allow_smt_split), allow_smt_split
    with suppress(NotEnoughCpus):
        whole = usable_cores(topology, smt)
        if len(whole.cores) >= count:
            found, split = whole, False
    number = len(topology.gpus)  # shares beyond it go round
    gpus: list[tuple[int, ...]] = [(i % number,) if number else () for i in range(count)]
    homes = _homes(topology, found.cores, gpus)
    threads = sum(len(core.threads) for core in found.cores)
    deal = deal_cores(topology, found.cores, homes, locality, threads)
    reserve = reserve_bytes(reserve_memory, topology.memory_bytes)
    memory = (topology.memory_bytes - reserve) // count
    memory -= memory % mmap.PAGESIZE
    if memory <= 0:
        raise NotEnoughMemory(
            f"{count} shares of {topology.memory_bytes} bytes with {reserve} in reserve leave {max(memory, 0)} each; "
            "lower --reserve-memory"
        )
    made = _slots(topology, deal.shares, gpus, memory)
    reasons = _unequal(made, topology, split)
    return Plan(
        slots=made,
        all=_everything(topology, found.cores, memory * count),
        gpus=topology.gpus,
        locality=locality,
        smt=smt,
        reserve_bytes=reserve,
        comparable=not reasons,
        reasons=tuple(reasons),
        unused_cpus=format_cpu_list([t for core in deal.unused for t in core.threads]),
        notes=found.left_out,
    )


def _count(slots: int | str, topology: Topology) -> int:
    if slots == "gpus":
        return max(1, len(topology.gpus))
    try:
        count = int(slots)
    except ValueError:
        count = 0
    if count < 1:
        raise InvalidArgument(f"slots {slots!r}; accepted: gpus, or a number from 1")
    return count


def _homes(topology: Topology, cores: tuple[Core, ...], gpus: list[tuple[int, ...]]) -> list[int]:
    """Return the NUMA node of each share: its GPU's, else the nodes with cores in turn, evenly."""
    nodes = sorted({core.node for core in cores})
    homes = []
    for i, mine in enumerate(gpus):
        node = topology.gpus[mine[0]].node if mine else -1
        homes.append(node if node in nodes else nodes[i * len(nodes) // len(gpus)])
    return homes


def reserve_bytes(wanted: str | int, total_bytes: int) -> int:
    """Bytes that a reserve of "auto", "5%", "4G" or a number of bytes means.

    Raises:
        InvalidArgument: for anything else, and for a negative one.
    """
    text = str(wanted).strip().upper()
    if text == "AUTO":
        return max(512 << 20, total_bytes // 20)
    try:
        if text.endswith("%"):
            value = int(float(text[:-1]) / 100 * total_bytes)
        else:
            number = text.rstrip("BIKMGT")
            unit = text[len(number) :].replace("IB", "").rstrip("B") or ""
            value = int(float(number) * _UNITS[unit])
    except (ValueError, KeyError, OverflowError):
        value = -1
    if value < 0:
        raise InvalidArgument(f"memory {wanted!r}; accepted: auto, 5%, 512M, 4G, or a number of bytes")
    return value


def _slots(
    topology: Topology, shares: tuple[tuple[Core, ...], ...], gpus: list[tuple[int, ...]], memory: int
) -> tuple[Slot, ...]:
    nodes_of = [sorted({core.node for core in share}) for share in shares]
    in_one = Counter(nodes[0] for nodes in nodes_of if len(nodes) == 1)
    room = {node.node: node.memory_bytes for node in topology.nodes}
    everywhere = format_cpu_list(sorted(room))
    made = []
    for i, (share, nodes) in enumerate(zip(shares, nodes_of, strict=True)):
        # Memory of one node alone ends in an OOM kill below the limit when the limits do not fit into the node.
        fits = len(nodes) == 1 and in_one[nodes[0]] * memory <= room.get(nodes[0], 0)
        threads = [t for core in share for t in core.threads]
        made.append(_share(f"student{i}", share, threads, str(nodes[0]) if fits else everywhere, memory, gpus[i]))
    return tuple(made)


def _everything(topology: Topology, cores: tuple[Core, ...], memory: int) -> Slot:
    cpus = sorted(topology.allowed & {c.cpu for c in topology.cpus})
    mems = format_cpu_list([node.node for node in topology.nodes])
    return _share(ALL, cores, cpus, mems, memory, tuple(range(len(topology.gpus))))


def _share(name: str, cores: Sequence[Core], cpus: list[int], mems: str, memory: int, gpus: tuple[int, ...]) -> Slot:
    return Slot(
        name, format_cpu_list(cpus), mems, memory, len(cores), len(cpus), gpus,
        crosses_numa=len({core.node for core in cores}) > 1, l3_count=len({core.l3 for core in cores}),
    )  # fmt: skip


def _unequal(slots: tuple[Slot, ...], topology: Topology, split: bool) -> list[str]:
    """Reasons why numbers of the shares cannot be compared with each other."""
    reasons = []
    if split:
        reasons.append("shares have threads of the same cores")
    for key, words in (
        ("crosses_numa", "cross NUMA nodes"),
        ("l3_count", "have another number of L3 caches"),
        ("mems", "may use memory of several nodes"),
    ):
        values = [getattr(slot, key) for slot in slots]
        if key == "mems":
            values = ["," in value or "-" in value for value in values]
        if len(set(values)) > 1:
            common = Counter(values).most_common(1)[0][0]
            odd = [slot.name for slot, value in zip(slots, values, strict=True) if value != common]
            reasons.append(f"some shares {words} and others do not: {', '.join(odd)} differ")
    if topology.gpus and len(slots) % len(topology.gpus) and len(slots) > len(topology.gpus):
        reasons.append(f"{len(slots)} shares on {len(topology.gpus)} GPUs: some GPUs are shared by more")
    return reasons


THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def environment(
    plan: Plan, slot: Slot, base: Mapping[str, str], run: str = ""
) -> tuple[dict[str, str], dict[str, str]]:
    """Add a share's variables to `base`; return it and the variables that were set already and stay.

    Threads are one per core: the siblings of a core share its units, and programs that count threads themselves read
    `CPU_COUNT`. A user's own value wins.
    """
    index = next((i for i, each in enumerate(plan.slots) if each == slot), 0)
    wanted = dict.fromkeys(THREADS, str(slot.cores))
    wanted |= {"DNNSUITE_SLOT": slot.name, "JOB_ID": str(index), "CPU_COUNT": str(slot.threads)}
    visible = _visible(plan, slot, base)
    kept = {name: base[name] for name in wanted if name in base and base[name] != wanted[name]}
    kept.pop("DNNSUITE_SLOT", None)  # ours; an outer run's is of no use inside
    result = {**base, **wanted, **kept, **visible}
    if run:
        result[RUN_VARIABLE] = f"{run}/{slot.name}"
    return result, kept


def _visible(plan: Plan, slot: Slot, base: Mapping[str, str]) -> dict[str, str]:
    """Return the GPUs of the share, by UUID where the driver tells it; through the user's own selection where there
    is one."""
    mine = [plan.gpus[i] for i in slot.gpus]
    if not mine:
        return {}
    name = "CUDA_VISIBLE_DEVICES" if mine[0].vendor == "nvidia" else "HIP_VISIBLE_DEVICES"
    already = [entry.strip() for entry in base.get(name, "").split(",") if entry.strip()]
    if already:  # the plan's numbers are places in what the user left visible
        chosen = [already[i % len(already)] for i in slot.gpus]
        return {name: ",".join(dict.fromkeys(chosen)), "CUDA_DEVICE_ORDER": base.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")}
    values = [gpu.uuid or str(i) for i, gpu in zip(slot.gpus, mine, strict=True)]
    if mine[0].vendor != "nvidia":
        return {"HIP_VISIBLE_DEVICES": ",".join(map(str, slot.gpus)), "ROCR_VISIBLE_DEVICES": ",".join(values)}
    return {name: ",".join(values), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
