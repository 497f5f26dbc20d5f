# SPDX-License-Identifier: MIT
"""Choice of each share's cores: whole cores, near its GPU, filling one L3 after the other. Deterministic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .._C import format_cpu_list
from ..errors import InvalidArgument, did_you_mean
from ._topology import Cpu, Topology
from .errors import HeterogeneousCpus, NotEnoughCpus, SmtSplit

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
    if smt not in ("on", "off"):
        raise InvalidArgument(f"smt {smt!r}; accepted: on, off{did_you_mean(smt, ('on', 'off'))}")
    siblings: dict[int, list[Cpu]] = defaultdict(list)
    for cpu in topology.cpus:
        siblings[cpu.core].append(cpu)
    allowed = {core: cpus for core, cpus in siblings.items() if any(c.cpu in topology.allowed for c in cpus)}
    _check_types(cpu for cpus in allowed.values() for cpu in cpus if cpu.cpu in topology.allowed)
    if split:
        threads = [c for cpus in allowed.values() for c in cpus if c.cpu in topology.allowed]
        return Cores(tuple(sorted(Core((c.cpu,), c.node, c.l3) for c in threads)), ())
    whole = [
        sorted(cpus, key=lambda c: c.cpu) for cpus in allowed.values() if all(c.cpu in topology.allowed for c in cpus)
    ]
    part = sorted(c.cpu for cpus in allowed.values() for c in cpus if c.cpu in topology.allowed) if not whole else []
    left_out = [
        f"core {core} (CPUs {format_cpu_list([c.cpu for c in cpus])}): only a part of it may be used"
        for core, cpus in sorted(allowed.items())
        if not all(c.cpu in topology.allowed for c in cpus)
    ]
    if not whole:
        raise NotEnoughCpus(
            f"no whole core may be used, only CPUs {format_cpu_list(part)}; allow whole cores or give --allow-smt-split"
        )
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
    if locality not in LOCALITIES:
        raise InvalidArgument(
            f"locality {locality!r}; accepted: {', '.join(LOCALITIES)}{did_you_mean(locality, LOCALITIES)}"
        )
    shares = len(homes)
    at_home = {node: sum(c.node == node for c in cores) // sum(home == node for home in homes) for node in set(homes)}
    everywhere, near = len(cores) // shares, min(at_home.values())
    if not everywhere:
        kind = SmtSplit if threads >= shares else NotEnoughCpus
        split = ", or give --allow-smt-split" if threads >= shares else ""
        raise kind(f"{shares} shares of {len(cores)} whole cores; ask for at most {len(cores)}{split}")
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
