# SPDX-License-Identifier: MIT
"""The machine as a plan of shares sees it, read from the kernel or from a recording of another machine; the cores of
each share.

Shares get whole cores near their GPU, and fill one L3 cache after the other. The result is deterministic.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import host
from .._C import format_cpu_list, parse_cpu_list, read_topology
from .._files import read_json
from ..errors import InvalidArgument, check_choice, reason
from .errors import HeterogeneousCpus, NotEnoughCpus, SmtSplit

GPU_VENDORS = {"0x10de": "nvidia", "0x1002": "amd"}  # a server's own VGA chip has the class of a GPU, too


@dataclass(frozen=True)
class Cpu:
    """A logical CPU; `core` is the lowest CPU of its physical core, `l3` the lowest one that shares its L3 cache."""

    cpu: int
    core: int
    package: int = -1
    node: int = 0
    l3: int = -1
    type: str = ""


@dataclass(frozen=True)
class Node:
    """A NUMA node; `distances` are those to all nodes in ascending order, with 10 for itself."""

    node: int
    memory_bytes: int
    distances: tuple[int, ...] = (10,)


@dataclass(frozen=True)
class Gpu:
    """A GPU; `node` is -1 if the machine does not report it, as is the case for most virtual machines."""

    address: str
    vendor: str = "nvidia"
    uuid: str = ""
    name: str = ""
    node: int = -1


@dataclass(frozen=True)
class Topology:
    """A machine, as far as a plan has to know it.

    Attributes:
        cpus: hardware threads; `nodes` are NUMA nodes, and `gpus` NVIDIA's GPUs.
        allowed: numbers of the CPUs that this process may use; all by default.
        memory_bytes: memory that it may use.

    Raises:
        InvalidArgument: there is no CPU, or none that is allowed.

    >>> from dnnsuite import pin
    >>> len(pin.Topology.read().cpus) >= 1
    True
    """

    cpus: tuple[Cpu, ...]
    nodes: tuple[Node, ...]
    gpus: tuple[Gpu, ...] = ()
    allowed: frozenset[int] = field(default_factory=frozenset)
    memory_bytes: int = 0

    def __post_init__(self) -> None:
        known = {cpu.cpu for cpu in self.cpus}
        if not known:
            raise InvalidArgument("a topology without CPUs")
        if not self.allowed:
            object.__setattr__(self, "allowed", frozenset(known))
        if not self.allowed & known:
            raise InvalidArgument(
                f"none of the allowed CPUs {format_cpu_list(sorted(self.allowed))} is among the machine's "
                f"{format_cpu_list(sorted(known))}"
            )

    @classmethod
    def read(cls, root: Path | str = "") -> Topology:
        """Read this machine, and which parts of it this process may use; with `root`, read all of the /sys and /proc
        below it.

        Raises:
            Error: there is no /sys.
        """
        text = str(root) if str(root) != "/" else ""
        found = read_topology(text)
        here = not text
        limit = host.memory_limit_bytes(Path(text or "/"))
        return cls(
            cpus=tuple(Cpu(**cpu) for cpu in found["cpus"]),
            nodes=tuple(_node(node) for node in found["nodes"]),
            gpus=_nvidia_gpus(found["devices"]) if here else _pci_gpus(found["devices"]),
            allowed=frozenset(os.sched_getaffinity(0)) if here else frozenset(),
            memory_bytes=min(found["memory_bytes"], limit) if limit else found["memory_bytes"],
        )

    @classmethod
    def load(cls, path: Path) -> Topology:
        """Load a recording: the output of `dnnsuite pin probe --json`, or only a topology.

        Raises:
            Error: the file is missing, damaged or of another kind; the message names it.
        """
        value = read_json(path)
        if not isinstance(value, Mapping):
            raise InvalidArgument(f"{path}: a recorded topology is a JSON object, not a {type(value).__name__}")
        try:
            return cls.from_dict(value.get("topology", value))
        except InvalidArgument as error:
            raise InvalidArgument(f"{path}: {reason(error)}") from error

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Topology:
        """Read what :meth:`to_dict` returned.

        Raises:
            InvalidArgument: a key is missing, or a value does not fit a topology.
        """
        try:
            return cls(
                cpus=tuple(Cpu(**cpu) for cpu in value["cpus"]),
                nodes=tuple(_node(node) for node in value["nodes"]),
                gpus=tuple(Gpu(**gpu) for gpu in value.get("gpus", ())),
                allowed=frozenset(parse_cpu_list(value.get("allowed", ""))),
                memory_bytes=int(value["memory_bytes"]),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InvalidArgument(f"no topology: {type(error).__name__}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {
            "cpus": [asdict(cpu) for cpu in self.cpus],
            "nodes": [{**asdict(node), "distances": list(node.distances)} for node in self.nodes],
            "gpus": [asdict(gpu) for gpu in self.gpus],
            "allowed": format_cpu_list(sorted(self.allowed)),
            "memory_bytes": self.memory_bytes,
        }

    def distance(self, one: int, other: int) -> int:
        """Distance between two nodes: 10 for the same node, and 20 if the machine does not report it."""
        if one == other:
            return 10
        order = sorted(node.node for node in self.nodes)
        for node in self.nodes:
            if node.node == one and other in order and len(node.distances) == len(order):
                return node.distances[order.index(other)]
        return 20

    def restricted(self, cpus: str) -> Topology:
        """Return the same machine, of which only `cpus` (a list like "0-3,8") may be used.

        Raises:
            InvalidArgument: `cpus` is not such a list, or one of them may not be used.
        """
        wanted = frozenset(parse_cpu_list(cpus))
        if not wanted <= self.allowed:
            raise InvalidArgument(
                f"CPUs {format_cpu_list(sorted(wanted - self.allowed))} may not be used; allowed are "
                f"{format_cpu_list(sorted(self.allowed))}"
            )
        return replace(self, allowed=wanted)


def _node(value: Mapping[str, Any]) -> Node:
    return Node(int(value["node"]), int(value["memory_bytes"]), tuple(value.get("distances", (10,))))


def _pci_gpus(devices: list[dict[str, Any]]) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(device["address"], GPU_VENDORS[device["vendor"]], node=device["node"])
        for device in devices
        if device["vendor"] in GPU_VENDORS
    )


def _nvidia_gpus(devices: list[dict[str, Any]]) -> tuple[Gpu, ...]:
    """Return the GPUs that NVIDIA's driver shows, in the order of their PCI addresses; without a driver those on the
    bus."""
    on_bus = _pci_gpus(devices)
    nodes = {gpu.address: gpu.node for gpu in on_bus}
    driver = [Gpu(gpu.address, "nvidia", gpu.uuid, gpu.name, nodes.get(gpu.address, -1)) for gpu in host.gpus()]
    others = [gpu for gpu in on_bus if gpu.vendor != "nvidia"]
    return tuple(sorted([*driver, *others], key=lambda gpu: gpu.address))


LOCALITIES = ("auto", "strict", "prefer")


@dataclass(frozen=True, order=True)
class Core:
    """The threads of a physical core that a share gets; as many of each core."""

    threads: tuple[int, ...]
    node: int
    l3: int


@dataclass(frozen=True)
class Cores:
    """Cores to share out, and those left out with the reason."""

    cores: tuple[Core, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class Deal:
    """The cores of each share, and those that no share got."""

    shares: tuple[tuple[Core, ...], ...]
    unused: tuple[Core, ...]


def usable_cores(topology: Topology, smt: str = "on", split: bool = False) -> Cores:
    """Whole cores whose threads may all be used.

    Args:
        smt: `on` takes all threads of a core, `off` its lowest.
        split: each thread counts as a core.

    Raises:
        HeterogeneousCpus: they are of several kinds.
        InvalidArgument: for another `smt`.
    """
    check_choice("smt", smt, ("on", "off"))
    usable = [cpu for cpu in topology.cpus if cpu.cpu in topology.allowed]
    _check_types(usable)
    if split:
        return Cores(tuple(sorted(Core((c.cpu,), c.node, c.l3) for c in usable)), ())
    siblings: dict[int, list[Cpu]] = {core: [] for core in sorted({cpu.core for cpu in usable})}
    for cpu in sorted(topology.cpus, key=lambda c: c.cpu):
        if cpu.core in siblings:
            siblings[cpu.core].append(cpu)
    whole = [cpus for cpus in siblings.values() if topology.allowed.issuperset(c.cpu for c in cpus)]
    left_out = [
        f"core {core} (CPUs {format_cpu_list([c.cpu for c in cpus])}): only a part of it may be used"
        for core, cpus in siblings.items()
        if cpus not in whole
    ]
    if not whole:
        part = format_cpu_list(sorted(cpu.cpu for cpu in usable))
        raise NotEnoughCpus(f"no whole core may be used, only CPUs {part}; allow whole cores or give --allow-smt-split")
    width = 1 if smt == "off" else min(map(len, whole))
    cores = tuple(sorted(Core(tuple(c.cpu for c in cpus[:width]), cpus[0].node, cpus[0].l3) for cpus in whole))
    if smt == "on" and any(len(cpus) > width for cpus in whole):
        left_out.append(f"threads past the {width} that every core has")
    return Cores(cores, tuple(left_out))


def _check_types(cpus: Iterable[Cpu]) -> None:
    kinds: dict[str, list[int]] = defaultdict(list)
    for cpu in cpus:
        kinds[cpu.type].append(cpu.cpu)
    if len(kinds) > 1:
        lists = "; ".join(f"{kind or 'unknown'} {format_cpu_list(sorted(c))}" for kind, c in sorted(kinds.items()))
        raise HeterogeneousCpus(f"cores of several kinds ({lists}); pick one kind with --cpus")


def deal_cores(topology: Topology, cores: Sequence[Core], homes: Sequence[int], locality: str, threads: int) -> Deal:
    """Deal `cores` to the shares whose home nodes are `homes`; every share gets as many.

    Args:
        locality: `strict` (none from another node), `prefer` (as many as there are, near ones first) or `auto`.
        threads: threads of all cores, for the message alone.

    Raises:
        NotEnoughCpus, SmtSplit: there are fewer cores than shares.
        InvalidArgument: for another `locality`.
    """
    check_choice("locality", locality, LOCALITIES)
    shares = len(homes)
    at_home = {node: sum(c.node == node for c in cores) // sum(home == node for home in homes) for node in set(homes)}
    everywhere, near = len(cores) // shares, min(at_home.values())
    if not everywhere:
        kind = SmtSplit if threads >= shares else NotEnoughCpus
        split = ", or give --allow-smt-split" if threads >= shares else ""
        raise kind(
            f"{shares} shares of {len(cores)} whole cores; ask for at most {len(cores)} (--slots or --copies){split}"
        )
    if locality == "strict" and not near:
        short = [node for node, count in sorted(at_home.items()) if not count]
        raise NotEnoughCpus(f"node {short[0]} has fewer whole cores than shares; give --locality prefer")
    count = near if locality == "strict" else everywhere
    return _deal(topology, cores, homes, count, at_home)


def _deal(topology: Topology, cores: Sequence[Core], homes: Sequence[int], count: int, at_home: dict[int, int]) -> Deal:
    free = set(cores)
    dealt: list[list[Core]] = [[] for _ in homes]
    for mine, home in zip(dealt, homes, strict=True):
        _take(free, mine, min(count, at_home[home]), lambda core, home=home: core.node == home)  # type: ignore[misc]
    while any(len(mine) < count for mine in dealt):  # one core each in turn, so that no share borrows all the near ones
        for mine, home in zip(dealt, homes, strict=True):
            if len(mine) < count:
                nearest = min(free, key=lambda c: (topology.distance(home, c.node), c.node)).node
                held = {core.l3 for core in mine if core.node == nearest}
                mine.append(min((c for c in free if c.node == nearest), key=lambda c: (c.l3 not in held, c)))
                free.discard(mine[-1])
    return Deal(tuple(tuple(sorted(mine)) for mine in dealt), tuple(sorted(free)))


def _take(free: set[Core], mine: list[Core], count: int, wanted: Callable[[Core], bool]) -> None:
    """Move `count` cores: from the L3 that fits best; from the fullest one when none has enough."""
    while count > 0:
        by_l3: dict[int, list[Core]] = defaultdict(list)
        for core in sorted(free):
            if wanted(core):
                by_l3[core.l3].append(core)
        enough = [group for group in by_l3.values() if len(group) >= count]
        chosen = min(enough, key=lambda g: (len(g), g)) if enough else min(by_l3.values(), key=lambda g: (-len(g), g))
        taken = chosen[:count]
        mine.extend(taken)
        free.difference_update(taken)
        count -= len(taken)
