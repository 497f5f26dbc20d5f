# SPDX-License-Identifier: MIT
"""Peaks: what invalidates them, what is kept of two measurements, and the probes themselves on small sizes."""

import dataclasses
import json
import os

import pytest
import torch

from dnnsuite._files import cache_folder
from dnnsuite.errors import InvalidArgument
from dnnsuite.profiler.roofline import Contention, Peaks, measure_peaks, peaks, probe_contention
from dnnsuite.profiler.roofline.peaks import CacheLevel, levels

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


KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture
def machine_with_caches(tmp_path):
    """Writes caches as (level, type, size, sharing) for CPU 0."""

    def write(*caches):
        for i, texts in enumerate(caches):
            folder = tmp_path / f"sys/devices/system/cpu/cpu0/cache/index{i}"
            folder.mkdir(parents=True)
            for name, text in zip(("level", "type", "size", "shared_cpu_list"), texts, strict=True):
                (folder / name).write_text(f"{text}\n")
        return tmp_path

    return write


DESKTOP = (
    ("1", "Data", "32K", "0"),
    ("1", "Instruction", "32K", "0"),
    ("2", "Unified", "1024K", "0"),
    ("3", "Unified", "32M", "0-7"),
)


def test_arrays_are_half_of_each_cache(machine_with_caches):
    found = levels([0, 1], machine_with_caches(*DESKTOP), memory_bytes=1 << 40)
    assert [(level.name, level.test_bytes_per_thread) for level in found] == [
        ("L1", 16 * KIB),
        ("L2", 512 * KIB),
        ("L3", 8 * MIB),
        ("memory", 64 * MIB),
    ]
    assert [level.capacity_bytes for level in found[:3]] == [64 * KIB, 2 * MIB, 32 * MIB]


def test_a_share_of_the_last_cache_that_is_hardly_larger_is_left_out(machine_with_caches):
    found = levels(
        list(range(8)), machine_with_caches(*DESKTOP[:3], ("3", "Unified", "8M", "0-7")), memory_bytes=1 << 40
    )
    assert [level.name for level in found] == ["L1", "L2", "memory"]
    assert found[-1].test_bytes_per_thread == 8 * MIB  # 64 MiB at least, for 8 threads


def test_the_largest_arrays_stay_within_memory(machine_with_caches):
    root = machine_with_caches(*DESKTOP[:3], ("3", "Unified", "1G", "0-7"))
    assert levels([0], root, memory_bytes=100 * MIB)[-1].test_bytes_per_thread == 100 * MIB
    assert levels([0], root, memory_bytes=1 << 40)[-1].test_bytes_per_thread == 1 << 30


def test_a_machine_that_says_nothing_has_memory(tmp_path):
    (only,) = levels([0, 1], tmp_path, memory_bytes=1 << 40)
    assert only.name == "memory"
    assert only.test_bytes_per_thread == 32 * MIB


def test_damaged_files_are_left_out(machine_with_caches):
    root = machine_with_caches(
        ("1", "Data", "big", "0"), ("x", "Data", "32K", "0"), ("2", "Unified", "1M", "zero"), DESKTOP[0]
    )
    assert [level.name for level in levels([0], root, memory_bytes=1 << 40)] == ["L1", "memory"]


def test_this_machine():
    found = levels([0])
    assert found[-1].name == "memory"
    sizes = [level.test_bytes_per_thread for level in found]
    assert sizes == sorted(sizes)


@pytest.fixture
def spins(monkeypatch, tmp_path):
    """Sets (wall, cpu) of the spins that follow."""
    monkeypatch.setenv("DNNSUITE_CACHE", str(tmp_path))

    def set_to(wall, cpu):
        monkeypatch.setattr(peaks, "spin", lambda iterations: (wall, cpu))

    return set_to


def test_slower_than_it_was_alone(spins):
    spins(1000, 1000)
    assert probe_contention(2, "here") == Contention(1.0, 0.0, 2)
    spins(3000, 1500)  # waits half of the time, and shares a core or a clock for the rest
    found = probe_contention(2, "here")
    assert (found.slowdown, found.waiting_pct, found.busy) == (3.0, 50.0, True)
    assert "3.00 times as long as alone, 50 %" in str(found)
    spins(500, 500)  # faster than ever: this is what alone is from now on
    assert probe_contention(2, "here").slowdown == 1.0
    spins(1000, 1000)
    assert probe_contention(2, "here").slowdown == 2.0


def test_another_machine_and_another_number_of_threads_have_their_own_best(spins):
    spins(500, 500)
    probe_contention(2, "here")
    spins(1000, 1000)
    assert probe_contention(2, "there").slowdown == 1.0
    assert probe_contention(1, "here").slowdown == 1.0


@pytest.mark.parametrize("text", ["", "[1]", '{"here-1": "x"}', '{"here-1": -5}', "{"])
def test_a_damaged_cache_is_none(spins, text):
    spins(1000, 1000)
    cache_folder().mkdir(exist_ok=True)
    (cache_folder() / "spin.json").write_text(text)
    assert probe_contention(1, "here").slowdown == 1.0


def test_a_cache_that_cannot_be_written_is_no_failure(spins, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DNNSUITE_CACHE", str(tmp_path / "file" / "below"))
    spins(1000, 1000)
    assert probe_contention(1, "here").slowdown == 1.0


def test_for_real():
    found = probe_contention(2, "a test")
    assert found.slowdown > 0.5
    assert 0 <= found.waiting_pct <= 100
    with pytest.raises(InvalidArgument, match="1 or more"):
        probe_contention(0, "a test")
