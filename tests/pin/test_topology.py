# SPDX-License-Identifier: MIT

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnnsuite import host
from dnnsuite.errors import Error, InvalidArgument
from dnnsuite.pin import Topology, _topology
from dnnsuite.pin._topology import deal_cores, usable_cores
from dnnsuite.pin.errors import HeterogeneousCpus, NotEnoughCpus, SmtSplit
from pin_machines import GB, machine, write_machine, write_tree

MACHINES = {
    "laptop": machine(cores=4),
    "intel": machine(nodes=2, cores=28, smt=2, gpu_nodes=(0, 0, 0, 0, 1, 1, 1, 1)),
    "epyc": machine(nodes=8, cores=16, smt=2, l3_cores=4, gpu_nodes=(3, 3, 1, 1, 7, 7, 5, 5), per_package=4),
}


def bare(topology: Topology) -> Topology:
    """Without what only the driver knows of a GPU."""
    return replace(topology, gpus=tuple(replace(gpu, uuid="", name="") for gpu in topology.gpus))


@pytest.mark.parametrize("name", MACHINES)
def test_what_is_read_is_what_the_machine_is(name: str, tmp_path: Path) -> None:
    assert Topology.read(write_machine(tmp_path, MACHINES[name])) == bare(MACHINES[name])


@pytest.mark.parametrize("name", MACHINES)
def test_a_recording_is_the_machine(name: str, tmp_path: Path) -> None:
    (tmp_path / "topology.json").write_text(json.dumps(MACHINES[name].to_dict()))
    (tmp_path / "probe.json").write_text(json.dumps({"topology": MACHINES[name].to_dict(), "level": "cgroup"}))
    assert Topology.load(tmp_path / "topology.json") == MACHINES[name] == Topology.load(tmp_path / "probe.json")


def test_a_limit_above_this_process_is_all_the_memory(tmp_path: Path) -> None:
    write_machine(tmp_path, MACHINES["laptop"])
    write_tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/memory.max": f"{8 * GB}\n",
            "sys/fs/cgroup/a/b/memory.max": "max\n",
        },
    )
    assert Topology.read(tmp_path).memory_bytes == 8 * GB


def test_kinds_of_cores(tmp_path: Path) -> None:
    two = machine(cores=2)
    kinds = (replace(two.cpus[0], type="capacity 1024"), replace(two.cpus[1], type="capacity 512"))
    write_machine(tmp_path, replace(two, cpus=kinds))
    assert [cpu.type for cpu in Topology.read(tmp_path).cpus] == ["capacity 1024", "capacity 512"]
    write_tree(tmp_path, {"sys/devices/cpu_core/cpus": "0\n", "sys/devices/cpu_atom/cpus": "1\n"})
    assert [cpu.type for cpu in Topology.read(tmp_path).cpus] == ["core", "atom"]


def test_a_kernel_that_tells_little(tmp_path: Path) -> None:
    write_tree(tmp_path, {"sys/devices/system/cpu/online": "0-1\n", "proc/meminfo": "MemTotal: 1024 kB\n"})
    found = Topology.read(tmp_path)
    assert [(cpu.core, cpu.node, cpu.l3, cpu.package) for cpu in found.cpus] == [(0, 0, -1, -1), (1, 0, -1, -1)]
    assert [(node.node, node.memory_bytes) for node in found.nodes] == [(0, 1 << 20)]


def test_no_sys(tmp_path: Path) -> None:
    with pytest.raises(Error, match="is /sys mounted"):
        Topology.read(tmp_path)


def test_this_machine() -> None:
    found = Topology.read()
    assert found.allowed == frozenset(os.sched_getaffinity(0))
    assert found.allowed <= {cpu.cpu for cpu in found.cpus}
    assert 0 < found.memory_bytes <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_lscpu_sees_the_same() -> None:
    if not shutil.which("lscpu"):
        pytest.skip("apt-get install util-linux")
    said = subprocess.run(["lscpu", "-J", "-e=CPU,NODE"], check=True, capture_output=True, text=True).stdout
    theirs = {int(row["cpu"]): int(row["node"] or 0) for row in json.loads(said)["cpus"]}
    assert {cpu.cpu: cpu.node for cpu in Topology.read().cpus} == theirs


def test_gpus_of_the_driver_get_the_node_of_their_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        _topology,
        "read_topology",
        lambda root: {
            "cpus": [{"cpu": cpu, "core": cpu} for cpu in os.sched_getaffinity(0)],
            "nodes": [{"node": 0, "memory_bytes": GB, "distances": [10]}],
            "devices": [
                {"address": "0000:3b:00.0", "vendor": "0x10de", "node": 1, "cpus": "4-7"},
                {"address": "0000:5e:00.0", "vendor": "0x10de", "node": 0, "cpus": "0-3"},  # not shown by the driver
            ],
            "memory_bytes": GB,
        },
    )
    monkeypatch.setattr(host, "gpus", lambda: [host.Gpu("H200", GB, "580", "GPU-a", "0000:3b:00.0")])
    (gpu,) = Topology.read().gpus
    assert (gpu.uuid, gpu.node, gpu.address, gpu.name) == ("GPU-a", 1, "0000:3b:00.0", "H200")


ONE = '"cpus": [{"cpu": 0, "core": 0}], "nodes": [], "memory_bytes": 1'


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        "{",
        '{"topology": 1}',
        '{"cpus": 3, "nodes": [], "memory_bytes": 1}',
        '{"cpus": [], "nodes": [], "memory_bytes": 1}',
        f'{{{ONE}, "allowed": "9"}}',
        f'{{{ONE}, "allowed": "x"}}',
    ],
)
def test_files_that_are_no_topology(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(Error, match=r"t\.json"):
        Topology.load(tmp_path / "t.json")


def test_restricting() -> None:
    assert MACHINES["laptop"].restricted("1-2").allowed == {1, 2}
    with pytest.raises(InvalidArgument, match=r"CPUs 4 may not be used; allowed are 0-3"):
        MACHINES["laptop"].restricted("1-4")


def test_distances() -> None:
    epyc = MACHINES["epyc"]
    assert [epyc.distance(0, n) for n in (0, 3, 4)] == [10, 12, 32]
    assert replace(epyc, nodes=tuple(replace(node, distances=()) for node in epyc.nodes)).distance(0, 1) == 20


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
