# SPDX-License-Identifier: MIT
import time
from pathlib import Path

import pytest

from dnnsuite.errors import Unavailable
from dnnsuite.profiler.dcgm import DcgmStream, column_of, device_of

HEADER = "#Entity   GRACT   SMACT   TENSO   PCITX\nID\n"
SAMPLE = "GPU 0     0.500   0.250   N/A     1024\nGPU 1     0.900   0.800   0.100   2048\n"


@pytest.fixture
def dcgmi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a scripted dcgmi."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "dcgmi"


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_the_latest_sample_of_each_gpu(dcgmi: Path) -> None:
    script(dcgmi, f"echo $@ > {dcgmi}.asked; printf '{HEADER}{SAMPLE}{HEADER}GPU 0 1 1 1 1\n'; exec sleep 60")
    stream = DcgmStream()
    stream.open()
    deadline_s = time.monotonic() + 30
    while {("gpu0", "gpm_sm", 100.0)} - {r[:3] for r in stream.read()} and time.monotonic() < deadline_s:
        time.sleep(0.01)
    found = {(r.device, r.name): (r.value, r.unit) for r in stream.read()}
    assert found["gpu1", "gpm_tensor"] == (10.0, "%")
    assert found["gpu1", "gpm_pcie_tx"] == (2048.0, "bytes/s")
    assert found["gpu0", "gpm_graphics"] == (100.0, "%")
    assert Path(f"{dcgmi}.asked").read_text().startswith("dmon -e 1001,1002,1003,1004")
    assert Path(f"{dcgmi}.asked").read_text().endswith("-d 100\n")
    stream.close()
    stream.close()
    assert list(stream.read()) == []


def test_what_it_says_instead_of_samples(dcgmi: Path) -> None:
    script(dcgmi, "echo 'Error setting watches. Result: Profiling is not supported'; exit 1")
    with pytest.raises(Unavailable, match=r"Profiling is not supported.*nv-hostengine"):
        DcgmStream().open()
    dcgmi.unlink()
    with pytest.raises(Unavailable, match="datacenter-gpu-manager"):
        DcgmStream().open()


def test_names() -> None:
    assert column_of("FBUSD") == column_of("DCGM_FI_DEV_FB_USED") == ("memory_used", float(1 << 20), "bytes")
    assert column_of("NEWFIELD") == ("NEWFIELD", 1.0, "")
    assert (device_of("GPU", "3"), device_of("GPU-I", "0")) == ("gpu3", "gpu-i0")
