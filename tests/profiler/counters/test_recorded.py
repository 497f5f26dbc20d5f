# SPDX-License-Identifier: MIT
"""Images recorded on GPUs (benchmarks/gpu/record_fixtures.py), evaluated by the real library: all that are there.

What records and what replays is itself tested with a double of the backend, whose images only the double reads.
"""

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from counters_double import BackendDouble
from cupti_plans import needs_cupti
from dnnsuite.errors import Unavailable
from dnnsuite.profiler.counters import catalogue, plan, select
from dnnsuite.profiler.counters.catalogue import CUPTI
from dnnsuite.profiler.counters.roles import SHARED

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "benchmarks/gpu/record_fixtures.py"
IMAGES = sorted((ROOT / "tests/fixtures").glob("*.image"))
pytestmark = needs_cupti


def load_script():
    spec = importlib.util.spec_from_file_location("record_fixtures", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def replay(path, backend):
    """The image again, and what was recorded of it."""
    about = json.loads(path.with_suffix(".json").read_text())
    collection = "sampling" if path.name.startswith("sampling") else "ranges"
    found = backend.evaluate(about["chip"], path.read_bytes(), about["metrics"], collection)
    return found, about


def same(value, recorded):
    """JSON has no NaN: null was one."""
    return math.isnan(value) if recorded is None else value == pytest.approx(recorded, rel=1e-12)


def check(path, backend):
    found, about = replay(path, backend)
    assert found["names"] == about["found"].get("names", [])
    assert len(found["values"]) >= 1
    assert len(found["values"]) == len(about["found"]["values"])
    for row, recorded in zip(found["values"], about["found"]["values"], strict=True):
        assert all(same(value, before) for value, before in zip(row, recorded, strict=True))
    return about


@pytest.mark.parametrize(
    "path", [path for path in IMAGES if not path.name.startswith("sampling")], ids=lambda p: p.stem
)
def test_a_recorded_image_says_the_same_here(path):
    about = check(path, CUPTI)
    if about["plan"] and f"cupti{catalogue.version()}-" in path.name:
        chosen = select(about["preset"], about["chip"])
        shared = [metric for metric, role in chosen.roles.items() if role in SHARED]
        assert plan(chosen.metrics, about["chip"], in_every_group=shared).to_dict() == about["plan"]


@pytest.mark.parametrize("path", [path for path in IMAGES if path.name.startswith("sampling")], ids=lambda p: p.stem)
def test_recorded_samples_are_a_series(path):
    found, about = replay(path, CUPTI)
    assert found["t0_ns"] == sorted(found["t0_ns"])
    assert all(len(row) == len(about["metrics"]) for row in found["values"])


def test_what_is_recorded_is_replayed(tmp_path, capsys):
    script = load_script()
    window = {"realtime_ns": 1, "monotonic_ns": 1, "overflows": 0, "t0_ns": [1], "t1_ns": [2], "values": [[1.0]]}
    backend = BackendDouble("GB202", windows=[{**window, "image": b"samples"}])
    steps = []
    assert script.record(tmp_path, list(script.PARTS), backend, lambda: lambda: steps.append(1)) == 0
    recorded = sorted(tmp_path.glob("*.image"))
    assert steps
    names = capsys.readouterr().out
    assert f"counters-cupti{catalogue.version()}-GB202-cores-0" in names
    assert f"counters-cupti{catalogue.version()}-GB202-cores-1" in names  # both groups that take turns
    assert f"kernels-cupti{catalogue.version()}-GB202-cores-0" in names
    assert (tmp_path / f"sampling-cupti{catalogue.version()}-GB202-timeline.image").read_bytes() == b"samples"
    for path in recorded:
        if not path.name.startswith("sampling"):
            assert check(path, backend)["chip"] == "GB202"
    changed = json.loads(recorded[0].with_suffix(".json").read_text())
    changed["found"]["values"][0][0] = -1.0
    recorded[0].with_suffix(".json").write_text(json.dumps(changed))
    with pytest.raises(AssertionError):
        check(recorded[0], backend)


def test_a_part_that_fails_does_not_stop_the_others(tmp_path, capsys):
    script = load_script()

    def broken(recording):
        raise Unavailable("no such thing", "", "get one")

    script.PARTS["broken"] = broken
    assert script.record(tmp_path, ["broken", "counters"], BackendDouble(), lambda: lambda: None) == 1
    said = capsys.readouterr()
    assert "broken: no such thing; get one" in said.err
    assert "counters-" in said.out


def test_without_a_gpu_the_script_says_why(tmp_path):
    refusal = Unavailable("no NVIDIA driver", "", "install it")
    assert load_script().record(tmp_path / "none", ["counters"], BackendDouble(refusal=refusal), lambda: None) == 2
    assert not (tmp_path / "none").exists()
    done = subprocess.run([sys.executable, SCRIPT, "--only", "magic"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "no part magic; there are counters, sampling" in done.stderr
