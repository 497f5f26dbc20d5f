# SPDX-License-Identifier: MIT
"""The GPU checks with and without each library. The libraries here are doubles: no GPU is looked at."""

import ctypes
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from dnnsuite.doctor import _gpu
from dnnsuite.profiler.counters import Feature


class Driver:
    """A libcuda that answers."""

    def __init__(self, init_status: int = 0) -> None:
        self.init_status = init_status

    def cuInit(self, flags: int) -> int:
        return self.init_status

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = 13020
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = 2
        return 0


def absent(name: str) -> Any:
    raise OSError(f"{name}: cannot open shared object file")


def test_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    assert _gpu.driver() == ("ok", "CUDA 13.2, 2 GPU(s)", "")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(init_status=100))
    assert _gpu.driver().status == "missing"
    assert "error 100" in _gpu.driver().detail
    monkeypatch.setattr(ctypes, "CDLL", absent)
    assert _gpu.driver().status == "missing"
    assert "libcuda.so.1" in _gpu.driver().detail


def test_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    fake: Any = types.ModuleType("pynvml")
    fake.NVMLError = type("NVMLError", (Exception,), {})
    fake.closed = False
    fake.nvmlInit = lambda: None
    fake.nvmlDeviceGetCount = lambda: 2
    fake.nvmlSystemGetDriverVersion = lambda: "590.1"
    fake.nvmlShutdown = lambda: setattr(fake, "closed", True)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    assert _gpu.nvml() == ("ok", "driver 590.1, 2 GPU(s)", "")
    assert fake.closed

    def refuse() -> None:
        raise fake.NVMLError("NVML Shared Library Not Found")

    fake.nvmlInit = refuse
    assert _gpu.nvml().detail == "NVMLError: NVML Shared Library Not Found"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert _gpu.nvml().remedy == "pip install nvidia-ml-py"


def test_each_copy_of_cupti_is_asked_until_one_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = [Path("/wheel/libcupti.so.13"), Path("/toolkit/libcupti.so.13")]
    asked: list[Path | str] = []

    def answers(path: Path | str) -> int | None:
        asked.append(path)
        return 130001 if path == copies[1] else None

    monkeypatch.setattr(_gpu, "candidates", lambda: copies)
    monkeypatch.setattr(_gpu, "version_of", answers)
    assert _gpu.cupti() == ("ok", f"version 130001, {copies[1]}", "")
    assert asked == copies
    monkeypatch.setattr(_gpu, "version_of", lambda path: None)
    assert _gpu.cupti().status == "missing"


def test_gpu_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    features = [Feature("permission", True), Feature("ranges", True)]
    monkeypatch.setattr("dnnsuite.profiler.counters.support", lambda: features)
    assert _gpu.counters().status == "ok"
    features.append(Feature("sampling", False, "the GPU runs in confidential computing", "use another mode"))
    assert _gpu.counters() == ("missing", "sampling: the GPU runs in confidential computing", "use another mode")


def test_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "nvcc"
    compiler.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.1, V13.1.99'\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CUDACXX", str(compiler))
    assert _gpu.nvcc() == ("ok", f"13.1, {compiler}", "")
    monkeypatch.setenv("CUDACXX", str(tmp_path / "absent"))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert _gpu.nvcc().status == "missing"


def test_cuda_torch_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.version, "cuda", None)
    assert "built without CUDA" in _gpu.torch_cuda().detail
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "sees no GPU" in _gpu.torch_cuda().detail
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda i: "H200")
    assert _gpu.torch_cuda() == ("ok", "CUDA 13.0: H200", "")


def test_modes_of_sharing_ask_the_workflow(monkeypatch: pytest.MonkeyPatch) -> None:
    from dnnsuite.workflow import devices

    monkeypatch.setattr(devices, "mps_unavailable", lambda device: f"no daemon for {device}")
    monkeypatch.setattr(devices, "mig_unavailable", lambda device: None)
    assert _gpu.mps()[:2] == ("missing", "no daemon for cuda")
    assert _gpu.mig().status == "ok"


def test_nothing_in_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_tool(*arguments: Any, **options: Any) -> Any:
        raise FileNotFoundError(2, "No such file", "tool")

    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(subprocess, "run", no_tool)
    for look in (_gpu.mps, _gpu.mig, _gpu.nvtx):
        assert look().status == "missing"
