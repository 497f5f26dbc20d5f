# SPDX-License-Identifier: MIT
"""Peaks: what invalidates them, what is kept of two measurements, and the probes themselves on small sizes."""

import dataclasses
import json
import os

import pytest
import torch

from dnnsuite.errors import InvalidArgument
from dnnsuite.profiler.roofline import Contention, Peaks, measure_peaks, peaks
from dnnsuite.profiler.roofline._caches import CacheLevel

CPUS = len(os.sched_getaffinity(0))
QUIET, BUSY = Contention(1.0, 0.0, CPUS), Contention(3.0, 50.0, CPUS)


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine whose measurements the test writes; `measured` counts them."""
    monkeypatch.setenv("DNNSUITE_CACHE", str(tmp_path / "cache"))

    class Machine:
        flops, contention, now, measured = 100.0, QUIET, QUIET, 0

        def measure(self, key, cpus, report):
            self.measured += 1
            return Peaks(
                key, len(cpus), {"fp32": self.flops}, {"memory": 7.0}, {"memory": 1 << 60}, self.contention, "t"
            )

    made = Machine()
    monkeypatch.setattr(peaks, "measure_machine", made.measure)
    monkeypatch.setattr(peaks, "probe_contention", lambda threads, key: made.now)
    made.folder = tmp_path / "cache/peaks"
    return made


def test_measured_once_and_then_read(machine):
    first, second = measure_peaks(), measure_peaks()
    assert machine.measured == 1
    assert first == second
    assert (first.from_cache, second.from_cache) == (False, True)
    assert first.threads == CPUS


@pytest.mark.parametrize("changed", ["cpu_model", "cpus_allowed", "torch", "threads", "version"])
def test_whatever_they_depend_on_invalidates_them(machine, monkeypatch, changed):
    measure_peaks()
    real = peaks.machine_key
    monkeypatch.setattr(peaks, "machine_key", lambda threads: {**real(threads), changed: "another"})
    measure_peaks()
    assert machine.measured == 2
    monkeypatch.setattr(peaks, "machine_key", real)
    measure_peaks()
    assert machine.measured == 2  # the first are still there


@pytest.mark.skipif(CPUS < 2, reason="needs two CPUs")
def test_threads_have_peaks_of_their_own(machine):
    assert measure_peaks(1).threads == 1
    measure_peaks(2)
    assert machine.measured == 2


def test_of_two_measurements_the_better_counts(machine):
    machine.contention = BUSY
    machine.now = BUSY
    measure_peaks()
    machine.flops, machine.contention = 50.0, QUIET
    again = measure_peaks(refresh=True)
    assert again.flops_per_s == {"fp32": 100.0}
    assert again.contention == QUIET
    assert measure_peaks() == again


def test_what_was_measured_beside_neighbours_is_measured_again_when_they_are_gone(machine):
    machine.contention = machine.now = BUSY
    measure_peaks()
    measure_peaks()
    assert machine.measured == 1
    machine.flops, machine.contention, machine.now = 300.0, QUIET, QUIET
    assert measure_peaks().flops_per_s == {"fp32": 300.0}
    measure_peaks()
    assert machine.measured == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: "{}",
        lambda text: text.replace("100.0", "-1.0"),
        lambda text: text.replace("100.0", '"fast"'),
        lambda text: json.dumps({**json.loads(text), "machine": {}}),
        lambda text: json.dumps({**json.loads(text), "contention": None}),
    ],
)
def test_a_damaged_file_is_measured_again(machine, damage):
    measure_peaks()
    (path,) = machine.folder.iterdir()
    path.write_text(damage(path.read_text()))
    assert measure_peaks().flops_per_s == {"fp32": 100.0}
    assert machine.measured == 2


def test_a_cache_that_cannot_be_written_is_told_and_no_failure(machine, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DNNSUITE_CACHE", str(tmp_path / "file" / "below"))
    told = []
    assert measure_peaks(report=told.append).flops_per_s == {"fp32": 100.0}
    assert any("not kept" in text for text in told)


@pytest.mark.parametrize("threads", [0, -1, CPUS + 1])
def test_threads_that_there_are_not(machine, threads):
    with pytest.raises(InvalidArgument, match=f"between 1 and {CPUS}"):
        measure_peaks(threads)


def test_the_level_is_the_smallest_that_holds_it(peaks):
    assert [peaks.level_of(size) for size in (0, 10**6, 10**6 + 1, 1e30)] == ["L2", "L2", "memory", "memory"]
    assert Peaks.from_dict(json.loads(json.dumps(peaks.to_dict()))) == peaks
    assert dataclasses.replace(peaks, threads=1) != peaks


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_probe_of_products(monkeypatch, precision):
    monkeypatch.setattr(peaks, "SIZES", (32, 64))
    monkeypatch.setattr(peaks, "GEMM_S", 0.01)
    before = torch.get_num_threads()
    assert 1e6 < peaks.gemm_peak(precision, 1) < 1e15
    assert torch.get_num_threads() == before


def test_the_whole_measurement(monkeypatch):
    monkeypatch.setattr(peaks, "SIZES", (32,))
    monkeypatch.setattr(peaks, "GEMM_S", 0.01)
    monkeypatch.setattr(
        peaks, "levels", lambda cpus: [CacheLevel("L1", 1 << 15, 1 << 13), CacheLevel("memory", 1 << 60, 1 << 21)]
    )
    told = []
    found = measure_peaks(1, refresh=True, report=told.append)
    assert set(found.flops_per_s) == {"fp32", "bf16"}
    assert set(found.bytes_per_s) == {"L1", "memory"}
    assert all(value > 1e6 for value in found.bytes_per_s.values())
    assert len(told) == 4
