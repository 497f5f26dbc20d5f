# SPDX-License-Identifier: MIT
import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from dnnsuite import host
from dnnsuite.errors import Error, InvalidArgument
from dnnsuite.pin import Topology, _topology
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
