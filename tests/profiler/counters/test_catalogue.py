# SPDX-License-Identifier: MIT
"""Names, against the real library, which needs no GPU; without it the error says what helps."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counter_image import empty_image
from counters_double import BackendDouble
from cupti_plans import needs_cupti
from dnnsuite import _C
from dnnsuite.errors import Error, InvalidArgument, Unavailable
from dnnsuite.profiler.counters import CountersInstrument, PmSamplingInstrument, catalogue, support
from dnnsuite.profiler.counters.catalogue import CUPTI, permission


@needs_cupti
def test_chips_from_volta_to_blackwell():
    known = catalogue.chips()
    assert {"GV100", "TU102", "GA100", "GA102", "AD102", "GH100", "GB100", "GB202"} <= set(known)
    assert "GV100" not in catalogue.chips("sampling")
    assert "GH100" in catalogue.chips("sampling")
    assert all(catalogue.host(chip).metrics("counter") for chip in known)


@needs_cupti
def test_metrics_are_found_by_pattern_and_by_part_of_their_name():
    exact = catalogue.metrics("GH100", "dram__bytes_read")
    assert [(one.name, one.type, one.unit, one.hardware_unit) for one in exact] == [
        ("dram__bytes_read", "counter", "byte", "dram")
    ]
    assert exact[0].description
    pipes = catalogue.metrics("GH100", "sm__pipe_*_cycles_active")
    assert {one.name for one in pipes} <= {one.name for one in catalogue.metrics("GH100", "pipe")}
    assert len(pipes) > 5
    assert catalogue.metrics("GH100", "no_such_thing") == []


@needs_cupti
def test_units():
    assert catalogue.unit_of("dram__bytes_read.sum", "GH100") == "byte"
    assert catalogue.unit_of("dram__bytes_read.sum.per_second", "GH100") == "byte/s"
    assert catalogue.unit_of("sm__inst_executed.avg.per_cycle_active", "GH100") == "instruction/gpc_cycle"
    assert catalogue.unit_of("gpu__time_duration.sum", "GH100") == "ns"
    assert catalogue.unit_of("lts__t_sector_hit_rate.ratio", "GH100") == ""
    assert catalogue.unit_of("dram__throughput.avg.pct_of_peak_sustained_elapsed", "GH100") == "%"


@needs_cupti
def test_an_unknown_chip_is_named_with_the_known():
    with pytest.raises(Unavailable, match="GH200") as caught:
        catalogue.metrics("GH200")
    assert "did you mean 'GH100'?" in str(caught.value)
    assert "more (`dnnsuite metrics roles`)" in str(caught.value)
    with pytest.raises(InvalidArgument, match="ranges, sampling"):
        catalogue.host("GH100", "colour")


def test_without_cupti_the_error_says_what_helps(tmp_path):
    """In a process of its own, whose loader comes upon a damaged file first: a library that was opened once stays."""
    (tmp_path / "libcupti.so.13").write_text("not a library")
    script = (
        "from dnnsuite import host\n"
        "host.vendor_folders = lambda: []\n"
        "from dnnsuite.errors import Unavailable\n"
        "from dnnsuite.profiler.counters import chips, metrics, support\n"
        "for ask in (chips, lambda: metrics('GH100')):\n"
        "    try:\n"
        "        ask()\n"
        "    except Unavailable as error:\n"
        "        print(error)\n"
        "print([one.remedy for one in support() if one.name == 'planning'])\n"
    )
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout.count("pip install 'dnnsuite[counters]'") == 3, done.stderr
    assert "libcupti.so.13 cannot be loaded" in done.stdout


@pytest.mark.parametrize(
    ("said", "metric", "unit"),
    [
        ("byte", "dram__bytes_read.sum.per_second", "byte/s"),  # CUPTI 13.1
        ("byte/second", "dram__bytes_read.sum.per_second", "byte/s"),  # 13.0
        ("byte", "dram__bytes_read.sum", "byte"),
        ("", "sm__throughput.avg.pct_of_peak_sustained_elapsed", "%"),
        ("instruction", "sm__inst_executed.avg.per_cycle_active", "instruction/cycle"),
        ("instruction/gpc_cycle", "sm__inst_executed.avg.per_cycle_active", "instruction/gpc_cycle"),
    ],
)
def test_a_unit_says_what_the_name_says_whatever_the_version(said, metric, unit):
    assert catalogue.with_suffix(said, metric) == unit


COMPILER = shutil.which("cc") or shutil.which("gcc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler: apt-get install gcc")
ANSWERS = {"good": "return 0;", "mute": "return 999;", "deadly": "return *(volatile int*)0;"}


@pytest.fixture
def libraries(tmp_path: Path) -> dict[str, Path]:
    for name, body in ANSWERS.items():
        source = f"int cuptiGetVersion(unsigned* version) {{ *version = 1; {body} }}"
        target = tmp_path / f"{name}.so"
        command = [str(COMPILER), "-shared", "-fPIC", "-O0", "-x", "c", "-", "-o", str(target)]
        subprocess.run(command, input=source, text=True, check=True)
    return {name: tmp_path / f"{name}.so" for name in ANSWERS}


@needs_compiler
def test_one_that_ends_the_process_is_not_asked_in_this_one(libraries: dict[str, Path]) -> None:
    assert {name: catalogue.version_of(path) for name, path in libraries.items()} == {
        "good": 1,
        "mute": None,
        "deadly": None,
    }
    assert catalogue.version_of("/no/such/library") is None


@needs_compiler
def test_without_a_driver_the_first_that_answers_is_opened(
    libraries: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def load(name: str) -> None:
        if name == "libcuda.so.1":
            raise OSError("no driver")
        opened.append(name)

    monkeypatch.setattr(catalogue.ctypes, "CDLL", load)
    order = [libraries[name] for name in ("deadly", "mute", "good")]
    monkeypatch.setattr(catalogue, "candidates", lambda: order)
    catalogue.ready.__wrapped__()
    assert opened == [str(order[-1])]
    monkeypatch.setattr(catalogue, "candidates", lambda: order[:2])
    with pytest.raises(Unavailable, match=r"dnnsuite\[counters\]") as caught:
        catalogue.ready.__wrapped__()
    assert str(order[1]) in caught.value.looked_in


def test_with_a_driver_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue.ctypes, "CDLL", lambda name: None)
    monkeypatch.setattr(catalogue, "candidates", lambda: pytest.fail("tried"))
    catalogue.ready.__wrapped__()


@needs_cupti
def test_a_copy_that_the_process_has_is_the_only_candidate() -> None:
    catalogue.ready()
    loaded = catalogue.candidates()
    assert len(loaded) == 1
    assert catalogue.version_of(loaded[0]) or catalogue._has_driver()


METRICS = ["sm__cycles_active.avg", "dram__bytes_read.sum"]
pytestmark = needs_cupti


def has_gpu():
    try:
        CUPTI.device(0)
    except Unavailable:
        return False
    return True


def test_an_empty_image_has_no_ranges_and_its_values_are_nan():
    raw = empty_image("GH100", ranges=2)
    assert CUPTI.evaluate("GH100", _C.seal_counter_image(raw), METRICS) == {
        "names": [],
        "t0_ns": [],
        "t1_ns": [],
        "values": [],
    }


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=4096))
def test_garbage_is_an_error_and_not_the_end_of_the_process(garbage):
    with pytest.raises(Error, match="counter-data image"):
        CUPTI.evaluate("GH100", garbage, METRICS)


def test_a_truncated_or_damaged_image_is_an_error():
    sealed = _C.seal_counter_image(empty_image("GH100", ranges=2))
    for cut in (1, 8, len(sealed) // 2, len(sealed) - 1):
        with pytest.raises(Error, match="counter-data image"):
            CUPTI.evaluate("GH100", sealed[:-cut], METRICS)
    for at in range(0, len(sealed), 97):
        damaged = bytearray(sealed)
        damaged[at] ^= 1
        with pytest.raises(Error, match="counter-data image"):
            CUPTI.evaluate("GH100", bytes(damaged), METRICS)


@pytest.mark.skipif(has_gpu(), reason="there is a GPU here")
def test_without_a_gpu_every_session_says_so():
    for instrument in (CountersInstrument(), PmSamplingInstrument()):
        with pytest.raises(Unavailable) as caught:
            instrument.open()
        assert caught.value.remedy
        instrument.close()
    with pytest.raises(InvalidArgument, match="accepted: ranges, sampling"):
        _C.CounterHost("GH100", "colour")


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
