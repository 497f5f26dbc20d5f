# SPDX-License-Identifier: MIT
"""Every reason that counters cannot be read for, from files and devices as they would be."""

import os
import socket

import pytest

from counters_double import BackendDouble
from dnnsuite import _C
from dnnsuite.errors import Unavailable
from dnnsuite.profiler.counters import support
from dnnsuite.profiler.counters._support import permission


def machine(root, admin_only="1", capabilities="0000000000000000"):
    (root / "proc/driver/nvidia").mkdir(parents=True)
    (root / "proc/self").mkdir()
    (root / "proc/driver/nvidia/params").write_text(
        f"ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: {admin_only}\n"
    )
    (root / "proc/self/status").write_text(f"Name:\tpython\nCapEff:\t{capabilities}\n")
    return root


def by_name(features):
    return {one.name: one for one in features}


def test_permission(tmp_path):
    refused = permission(machine(tmp_path / "a"))
    assert not refused.available
    assert "RmProfilingAdminOnly is 1" in refused.reason
    assert "NVreg_RestrictProfilingToAdminUsers=0" in refused.remedy
    assert "CAP_SYS_ADMIN" in refused.remedy
    assert permission(machine(tmp_path / "b", admin_only="0")).available
    assert permission(machine(tmp_path / "c", capabilities="0000000000200000")).available  # CAP_SYS_ADMIN alone
    assert not permission(machine(tmp_path / "d", capabilities="ffffffffffdfffff")).available  # all but that
    assert "no NVIDIA driver" in permission(tmp_path / "nowhere").reason


def test_a_gpu_in_confidential_computing_behind_a_vgpu(tmp_path):
    found = by_name(support(root=machine(tmp_path), backend=BackendDouble()))
    assert found["ranges"].available
    assert not found["sampling"].available
    assert "confidential computing" in found["sampling"].reason
    assert "virtual GPU" in found["sampling"].reason
    assert "devtools" in found["sampling"].remedy


def test_mps_and_mig(tmp_path, monkeypatch):
    root = machine(tmp_path)
    assert by_name(support(root=root, backend=BackendDouble()))["no_mps"].available
    pipes = root / "tmp/nvidia-mps"
    pipes.mkdir(parents=True)
    os.mkfifo(pipes / "control")
    found = by_name(support(root=root, backend=BackendDouble()))
    assert "nvidia-cuda-mps-control" in found["no_mps"].remedy
    assert found["no_mig"].available
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-4711")
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/elsewhere")
    found = by_name(support(root=root, backend=BackendDouble()))
    assert found["no_mps"].available
    assert "NaN" in found["no_mig"].reason
    (root / "elsewhere").mkdir()
    monkeypatch.chdir(root / "elsewhere")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("control")
        assert not by_name(support(root=root, backend=BackendDouble()))["no_mps"].available


def test_no_gpu_is_a_reason_and_no_exception(tmp_path):
    refusal = Unavailable("no NVIDIA driver", "the loader's path", "install it")
    found = by_name(support(root=tmp_path, backend=BackendDouble(refusal=refusal)))
    for name in ("ranges", "sampling"):
        assert (found[name].available, found[name].reason, found[name].remedy) == (
            False,
            "no NVIDIA driver",
            "install it",
        )
    assert found["ranges"].to_dict()["name"] == "ranges"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (26, "dcgmi profile --pause"),
        (27, "MPS"),
        (31, "nvidia-cuda-mps-control"),
        (33, "passed-through"),
        (35, "NVreg_RestrictProfilingToAdminUsers=0"),
        (39, "torch.profiler"),
        (40, "enable_profiling"),
        (41, "devtools"),
        (43, "MIG"),
    ],
)
def test_refusals_of_cupti_have_a_way_out(number, words):
    reason, remedy = _C.counter_refusal(number)
    assert reason
    assert words in remedy
    assert _C.counter_refusal(1) is None
