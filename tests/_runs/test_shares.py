"""Devices that a user names, and processes that are confined to them."""

import os
import sys

import pytest

from dnnsuite import host
from dnnsuite._runs.starters import OnShares, Share, shares_of
from dnnsuite.errors import InvalidArgument, Unavailable


@pytest.fixture
def four_gpus(monkeypatch):
    gpu = host.Gpu("NVIDIA H100", 1 << 36, "580", "GPU-1")
    monkeypatch.setattr(host, "gpus", lambda: [gpu] * 4)
    monkeypatch.setattr(host, "torch_has_cuda", lambda: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_each_process_sees_one_gpu(four_gpus, monkeypatch):
    found = shares_of("all", 16)
    assert [share.name for share in found] == ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]
    assert {(share.device, share.threads) for share in found} == {("cuda", 4)}
    assert [share.variables["CUDA_VISIBLE_DEVICES"] for share in found] == ["0", "1", "2", "3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-7,3")
    assert [share.variables["CUDA_VISIBLE_DEVICES"] for share in shares_of("all", 1)] == ["GPU-7", "3"]
    (one,) = shares_of(["cuda:1"], 8)
    assert (one.name, one.threads, one.variables) == ("cuda:1", 8, {"CUDA_VISIBLE_DEVICES": "3"})


def test_parts_of_the_cpus_are_apart():
    here = os.sched_getaffinity(0)
    found = shares_of("cpu,cpu", 2 * len(here))
    assert [share.name for share in found] == ["cpu:0", "cpu:1"]
    assert set(found[0].cpus).isdisjoint(found[1].cpus)
    assert {cpu for share in found for cpu in share.cpus} <= here
    assert [share.threads for share in found] == [len(share.cpus) for share in found]
    assert shares_of(["cpu:0", "cpu:1"], 2) == shares_of("cpu, cpu", 2)


@pytest.mark.parametrize(
    ("devices", "says"),
    [
        ("", "give 'all'"),
        ("tpu:0", "give 'all'"),
        ("cuda:0,cpu", "round otherwise"),
        ("cuda:0,cuda:0", "is given twice"),
        ("cuda", "has no number"),
        ("cpu:1,cpu:0", "give 'all'"),
        (",".join(["cpu"] * 5000), "5000 shares"),
    ],
)
def test_what_is_no_device_is_refused(four_gpus, devices, says):
    with pytest.raises(InvalidArgument, match=says):
        shares_of(devices, 4)


def test_a_gpu_that_is_not_there(four_gpus, monkeypatch):
    with pytest.raises(Unavailable, match="cuda:4: this process sees 4 GPUs"):
        shares_of("cuda:4", 4)
    monkeypatch.setattr(host, "gpus", list)
    with pytest.raises(Unavailable, match="shows no GPU"):
        shares_of("all", 4)


def test_a_process_runs_on_its_share_alone(tmp_path):
    before = os.sched_getaffinity(0)
    cpu = min(before)
    starter = OnShares([Share("cpu:0", "cpu", 1, {"WHERE": "here"}, (cpu,))])
    out = tmp_path / "out"
    with out.open("wb") as file, open(os.devnull, "rb") as empty:
        command = [sys.executable, "-c", "import os; print(os.sched_getaffinity(0), os.environ['WHERE'])"]
        process = starter.start(0, command, dict(os.environ), (empty.fileno(), file.fileno(), file.fileno()))
        while process.poll() is None:
            pass
    assert process.finish().returncode == 0
    assert out.read_text().split() == [f"{{{cpu}}}", "here"]
    assert os.sched_getaffinity(0) == before
