# SPDX-License-Identifier: MIT
"""The machine as a plan of shares sees it, from the kernel or from a recording of another machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import host
from .._C import format_cpu_list, parse_cpu_list, read_topology
from .._files import read_json
from ..errors import InvalidArgument, reason

GPU_VENDORS = {"0x10de": "nvidia", "0x1002": "amd"}  # a server's own VGA chip has the class of a GPU, too


@dataclass(frozen=True)
class Cpu:
    """A logical CPU; `core` is the lowest CPU of its physical core, `l3` the lowest one that shares its L3."""

    cpu: int
    core: int
    package: int = -1
    node: int = 0
    l3: int = -1
    type: str = ""


@dataclass(frozen=True)
class Node:
    """A NUMA node; `distances` are to the nodes in ascending order, 10 is itself."""

    node: int
    memory_bytes: int
    distances: tuple[int, ...] = (10,)


@dataclass(frozen=True)
class Gpu:
    """A GPU; `node` is -1 where the machine does not tell, as most virtual machines."""

    address: str
    vendor: str = "nvidia"
    uuid: str = ""
    name: str = ""
    node: int = -1


@dataclass(frozen=True)
class Topology:
    """CPUs, nodes, GPUs, the CPUs that may be used and the memory (bytes) that may be used.

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
        """Read this machine and the parts of it that this process may use; or the /sys and /proc under `root`, all of
        it.

        Raises:
            Error: there is no /sys to read.
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
        """Return a recording: what `dnnsuite pin probe --json` printed, or a topology alone.

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
            InvalidArgument: a key is missing or a value is no topology's.
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
        """Distance between two nodes: 10 is the same one; 20 where the machine does not tell."""
        if one == other:
            return 10
        order = sorted(node.node for node in self.nodes)
        for node in self.nodes:
            if node.node == one and other in order and len(node.distances) == len(order):
                return node.distances[order.index(other)]
        return 20

    def restricted(self, cpus: str) -> Topology:
        """Return the same machine of which only `cpus` (a list as 0-3,8) may be used.

        Raises:
            InvalidArgument: it is no list, or one of them may not be used.
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
