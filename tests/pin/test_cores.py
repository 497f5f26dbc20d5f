# SPDX-License-Identifier: MIT
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnnsuite.errors import InvalidArgument
from dnnsuite.pin._cores import deal_cores, usable_cores
from dnnsuite.pin.errors import HeterogeneousCpus, NotEnoughCpus, SmtSplit
from pin_machines import machine


def test_siblings_are_one_core() -> None:
    assert [core.threads for core in usable_cores(machine(cores=3, smt=2)).cores] == [(0, 3), (1, 4), (2, 5)]
    assert [core.threads for core in usable_cores(machine(cores=2, smt=2), smt="off").cores] == [(0,), (1,)]
    with pytest.raises(InvalidArgument, match="smt 'maybe'; accepted: on, off"):
        usable_cores(machine(), smt="maybe")


def test_a_core_partly_allowed_is_left_out_and_told() -> None:
    found = usable_cores(replace(machine(cores=3, smt=2), allowed=frozenset({0, 1, 3})))
    assert [core.threads for core in found.cores] == [(0, 3)]
    assert found.left_out == ("core 1 (CPUs 1,4): only a part of it may be used",)
    with pytest.raises(NotEnoughCpus, match=r"no whole core may be used, only CPUs 0-1"):
        usable_cores(replace(machine(cores=3, smt=2), allowed=frozenset({0, 1})))


def test_a_core_with_a_sibling_offline_narrows_the_others() -> None:
    whole = machine(cores=2, smt=2)
    found = usable_cores(replace(whole, cpus=whole.cpus[:3], allowed=frozenset({0, 1, 2})))
    assert [core.threads for core in found.cores] == [(0,), (1,)]
    assert found.left_out == ("threads past the 1 that every core has",)


def test_several_kinds_of_cores_are_refused() -> None:
    cpus = tuple(replace(cpu, type="core" if cpu.cpu < 2 else "atom") for cpu in machine(cores=6).cpus)
    mixed = replace(machine(cores=6), cpus=cpus)
    with pytest.raises(HeterogeneousCpus, match=r"atom 2-5; core 0-1\); pick one kind with --cpus"):
        usable_cores(mixed)
    assert len(usable_cores(mixed.restricted("2-5")).cores) == 4


def test_caches_are_filled_one_after_the_other() -> None:
    topology = machine(cores=12, l3_cores=4)
    deal = deal_cores(topology, usable_cores(topology).cores, [0, 0, 0], "auto", 12)
    assert [{core.l3 for core in share} for share in deal.shares] == [{0}, {4}, {8}]
    topology = topology.restricted("0-2,4-7")  # three and four: the share of three fits the first best
    deal = deal_cores(topology, usable_cores(topology).cores, [0, 0], "auto", 7)
    assert [[core.threads[0] for core in share] for share in deal.shares] == [[0, 1, 2], [4, 5, 6]]


def test_borrowed_cores_go_round() -> None:
    """Three shares at home on node 0 of three: each borrows, none takes all of the nearest node."""
    topology = machine(nodes=3, cores=4)
    deal = deal_cores(topology, usable_cores(topology).cores, [0, 0, 0], "prefer", 12)
    assert [len(share) for share in deal.shares] == [4, 4, 4]
    assert [len({core.node for core in share}) for share in deal.shares] == [3, 3, 3]


@pytest.mark.parametrize(
    ("shares", "threads", "kind"), [(9, 16, SmtSplit), (17, 16, NotEnoughCpus)], ids=["split", "few"]
)
def test_fewer_cores_than_shares(shares: int, threads: int, kind: type) -> None:
    topology = machine(cores=8, smt=2)
    with pytest.raises(NotEnoughCpus, match=rf"{shares} shares of 8 whole cores") as caught:
        deal_cores(topology, usable_cores(topology).cores, [0] * shares, "auto", threads)
    assert type(caught.value) is kind


def test_strict_needs_cores_at_home() -> None:
    topology = machine(nodes=2, cores=2)
    cores = usable_cores(topology).cores
    with pytest.raises(NotEnoughCpus, match="node 0 has fewer whole cores than shares; give --locality prefer"):
        deal_cores(topology, cores, [0, 0, 0], "strict", 4)
    with pytest.raises(InvalidArgument, match="locality 'near'; accepted: auto, strict, prefer"):
        deal_cores(topology, cores, [0], "near", 4)


@settings(max_examples=60, deadline=None)
@given(
    nodes=st.integers(1, 4),
    cores=st.integers(1, 9),
    smt=st.integers(1, 2),
    l3=st.integers(0, 3),
    locality=st.sampled_from(["auto", "strict", "prefer"]),
    data=st.data(),
)
def test_shares_are_disjoint_equal_and_allowed(nodes, cores, smt, l3, locality, data) -> None:
    topology = machine(nodes=nodes, cores=cores, smt=smt, l3_cores=l3)
    found = usable_cores(topology).cores
    homes = data.draw(st.lists(st.integers(0, nodes - 1), min_size=1, max_size=nodes * cores))
    try:
        deal = deal_cores(topology, found, homes, locality, nodes * cores * smt)
    except NotEnoughCpus:
        assert locality == "strict"
        return
    dealt = [core for share in deal.shares for core in share]
    assert len(set(dealt)) == len(dealt)
    assert len({len(share) for share in deal.shares}) == 1
    assert sorted([*dealt, *deal.unused]) == sorted(found)
    if locality == "strict":
        assert all(core.node == home for share, home in zip(deal.shares, homes, strict=True) for core in share)
    again = deal_cores(topology, tuple(reversed(found)), homes, locality, nodes * cores * smt)
    assert again == deal
