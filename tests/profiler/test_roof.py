# SPDX-License-Identifier: MIT
"""A profile against peaks that were measured before, and without any."""

import pytest
import torch

from dnnsuite import profiler
from dnnsuite._files import write_json
from dnnsuite.profiler.roofline import Contention, Peaks
from dnnsuite.profiler.roofline.peaks import machine_key, peaks_file
from dnnsuite.profiler.summary import flops_per_s, threads_in_use, under_the_roofs
from profiler_loops import loop


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DNNSUITE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def observed():
    with profiler.profile() as p:
        loop(p, 2, 0, torch.nn.Linear(4, 2))
    return p


def known_peaks():
    machine = machine_key(threads_in_use())
    levels = {"L1": 1 << 20, "memory": 1 << 40}
    peaks = Peaks(
        machine=machine,
        threads=threads_in_use(),
        flops_per_s={"fp32": 1e12, "bf16": 2e12},
        bytes_per_s=dict.fromkeys(levels, 1e10),
        capacity_bytes=levels,
        contention=Contention(1.0, 0.0, 1),
        measured_at="2026-01-01",
    )
    peaks_file(machine).parent.mkdir(parents=True, exist_ok=True)
    write_json(peaks_file(machine), peaks.to_dict())
    return peaks


def test_the_rate_of_arithmetic_is_that_of_the_operators(observed):
    wall_s = sum(step.t1_ns - step.t0_ns for step in observed.active) / 1e9
    # a product of [3, 4] and [4, 2] forward, and [2, 3] and [3, 4] backward, in each of two steps
    assert flops_per_s(observed) * wall_s == pytest.approx(2 * 2 * (2 * 3 * 4 * 2))


def test_without_peaks_there_is_no_roof(observed, tmp_path):
    assert under_the_roofs(observed) is None
    assert "dnnsuite roofline measures" in observed.summary()
    assert "roofline.png" not in {path.name for path in observed.save(tmp_path / "out")}


def test_with_peaks_operators_stand_under_them(observed, tmp_path):
    known_peaks()
    found = under_the_roofs(observed)
    assert found.summary.pct_of_peak == pytest.approx(100 * flops_per_s(observed) / 1e12)
    assert "% of the measured peak" in observed.summary()
    names = {path.name for path in observed.save(tmp_path / "out")}
    assert {"roofline.png", "roofline.csv"} <= names
