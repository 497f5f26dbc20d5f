# SPDX-License-Identifier: MIT
import os
import subprocess
from pathlib import Path

import pytest

from dnnsuite import _C, host
from dnnsuite.errors import Unavailable

GB = 1 << 30


def machine(root: Path, cgroup: str, files: dict[str, str], available_kb: int = 8 << 20) -> Path:
    """A root with the few files that are read."""
    files = {
        "proc/meminfo": f"MemTotal: 99 kB\nMemAvailable:  {available_kb} kB\n",
        "proc/self/cgroup": cgroup,
        **files,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_memory_without_a_limit(tmp_path: Path) -> None:
    assert host.available_memory_bytes(machine(tmp_path, "0::/\n", {})) == 8 * GB


@pytest.mark.parametrize("where", ["sys/fs/cgroup", "sys/fs/cgroup/a/b"])
def test_v2_limit_of_the_group_or_above(where: str, tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/a/b/memory.max": "max",
        f"{where}/memory.max": str(4 * GB),
        f"{where}/memory.current": str(3 * GB),
        f"{where}/memory.stat": f"anon 5\ninactive_file {GB}\n",
    }
    # Page cache that can be dropped is free: 4 - 3 + 1.
    assert host.available_memory_bytes(machine(tmp_path, "0::/a/b\n", files)) == 2 * GB


def test_v1_limit_in_a_container(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/memory"  # the path in /proc is the host's and does not exist here
    files = {
        f"{group}/memory.limit_in_bytes": str(2 * GB),
        f"{group}/memory.usage_in_bytes": str(GB),
        f"{group}/memory.stat": "cache 7\n",
    }
    assert host.available_memory_bytes(machine(tmp_path, "4:memory:/docker/123\n0::/\n", files)) == GB


def test_v1_without_a_limit(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/memory"
    files = {f"{group}/memory.limit_in_bytes": "9223372036854771712", f"{group}/memory.usage_in_bytes": str(GB)}
    assert host.available_memory_bytes(machine(tmp_path, "4:memory:/\n", files)) == 8 * GB


def test_more_used_than_allowed_is_nothing(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/memory.max": str(GB), "sys/fs/cgroup/memory.current": str(2 * GB)}
    assert host.available_memory_bytes(machine(tmp_path, "0::/\n", files)) == 0


def test_oom_kills_are_counted(tmp_path: Path) -> None:
    files = {"proc/vmstat": "pgfault 3\noom_kill 2\n", "sys/fs/cgroup/a/memory.events": "oom 4\noom_kill 3\n"}
    assert host.oom_kills(machine(tmp_path, "0::/a\n", files)) == 5


def test_this_machine() -> None:
    described = host.describe()
    assert described["memory_bytes"] > host.available_memory_bytes() > 0
    assert described["cpus_allowed"] == sorted(os.sched_getaffinity(0))
    assert host.num_cpus() == len(described["cpus_allowed"])
    assert described["cpu_model"]
    assert {"python", "torch", "dnnsuite", "kernel"} <= set(host.versions())
    assert len(host.load_average()) == 3


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        ("processor\t: 0\nmodel name\t: Xeon\n\nprocessor\t: 1\nmodel name\t: Xeon\n", "Xeon"),
        ("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n", "Arm Neoverse-V2"),
        (
            "processor\t: 0\nCPU implementer\t: 0xc0\nCPU part\t: 0xac3\n",
            f"{os.uname().machine}, implementer 0xc0, part 0xac3",
        ),
        ("", os.uname().machine),
    ],
)
def test_the_processor_has_a_name(tmp_path: Path, cpuinfo: str, name: str) -> None:
    assert host.cpu_model(machine(tmp_path, "", {"proc/cpuinfo": cpuinfo})) == name


@pytest.mark.parametrize(
    ("flags", "bf16"), [("fma avx512f", False), ("fma avx512_bf16", True), ("amx_bf16 amx_tile", True), (None, False)]
)
def test_a_half_precision_needs_units(tmp_path: Path, flags: str | None, bf16: bool) -> None:
    root = machine(tmp_path, "", {} if flags is None else {"proc/cpuinfo": f"processor\t: 0\nflags\t\t: {flags}\n"})
    assert host.computes_in("bf16", root) == bf16
    assert host.computes_in("fp32", root)
    assert not host.computes_in("fp16", root)


def test_folders_of_wheels_come_before_the_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("wheels/nvidia/cu13/lib", "wheels/nvidia/cublas/lib", "toolkit/lib64", "toolkit/extras/CUPTI/lib64"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path / "wheels")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    found = [folder for folder in host.vendor_folders() if folder.is_relative_to(tmp_path)]
    assert [str(folder.relative_to(tmp_path)) for folder in found] == [
        "wheels/nvidia/cu13/lib",
        "wheels/nvidia/cublas/lib",
        "toolkit/lib64",
        "toolkit/extras/CUPTI/lib64",
    ]


def test_a_missing_library_says_where_and_what_helps(tmp_path: Path) -> None:
    _C.add_library_folder(str(tmp_path))
    with pytest.raises(Unavailable) as caught:
        _C.library_path("libnone_such.so.1", "get one")
    assert str(tmp_path) in caught.value.looked_in
    assert caught.value.remedy == "get one"


def test_a_damaged_library_is_told_from_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "libdamaged.so.1").write_text("not a library")
    _C.add_library_folder(str(tmp_path))
    with pytest.raises(Unavailable, match=r"invalid ELF header|file too short"):
        _C.library_path("libdamaged.so.1")
    assert _C.library_path("libc.so.6").endswith("libc.so.6")


def test_a_family_of_processes() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 1000 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        child = int(shell.stdout.readline())
        assert list(host.family([shell.pid])) == [shell.pid, child]
        assert sorted(host.family([child, shell.pid, child])) == sorted([shell.pid, child])
        os.kill(child, 9)
    assert list(host.family([child, shell.pid])) == [
        shell.pid,
        child,
    ]  # both have ended: they are named, and that is all


def test_the_system_is_described_by_what_linux_tells(tmp_path):
    files = {
        "proc/meminfo": "MemTotal:  33554432 kB\n",
        "proc/cpuinfo": "processor : 0\nmicrocode\t: 0xa0011d1\n",
        "proc/sys/kernel/osrelease": "6.1.0-13-amd64\n",
        "proc/self/mounts": "/dev/sda1 / ext4 rw 0 0\n/dev/nvme0n1p2 /data xfs rw 0 0\n",
        "etc/os-release": 'NAME=x\nPRETTY_NAME="Some Linux 12"\n',
        "sys/block/nvme0n1/device/model": "FAST 2TB\n",
        "sys/devices/system/node/node0/x": "",
        "sys/devices/system/node/node1/x": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert host.system(tmp_path, Path("/data/runs")) == {
        "memory": "32.0 GiB", "NUMA nodes": "2", "storage": "xfs on /dev/nvme0n1p2 (FAST 2TB)",
        "operating system": "Some Linux 12", "kernel": "6.1.0-13-amd64", "microcode": "0xa0011d1",
    }  # fmt: skip
    assert host.system(tmp_path / "nothing") == {}
