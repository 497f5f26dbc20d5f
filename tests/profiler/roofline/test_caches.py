# SPDX-License-Identifier: MIT
"""Levels of memory of recorded machines."""

import pytest

from dnnsuite.profiler.roofline._caches import levels

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture
def machine(tmp_path):
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


def test_arrays_are_half_of_each_cache(machine):
    found = levels([0, 1], machine(*DESKTOP), memory_bytes=1 << 40)
    assert [(level.name, level.test_bytes_per_thread) for level in found] == [
        ("L1", 16 * KIB),
        ("L2", 512 * KIB),
        ("L3", 8 * MIB),
        ("memory", 64 * MIB),
    ]
    assert [level.capacity_bytes for level in found[:3]] == [64 * KIB, 2 * MIB, 32 * MIB]


def test_a_share_of_the_last_cache_that_is_hardly_larger_is_left_out(machine):
    found = levels(list(range(8)), machine(*DESKTOP[:3], ("3", "Unified", "8M", "0-7")), memory_bytes=1 << 40)
    assert [level.name for level in found] == ["L1", "L2", "memory"]
    assert found[-1].test_bytes_per_thread == 8 * MIB  # 64 MiB at least, for 8 threads


def test_the_largest_arrays_stay_within_memory(machine):
    root = machine(*DESKTOP[:3], ("3", "Unified", "1G", "0-7"))
    assert levels([0], root, memory_bytes=100 * MIB)[-1].test_bytes_per_thread == 100 * MIB
    assert levels([0], root, memory_bytes=1 << 40)[-1].test_bytes_per_thread == 1 << 30


def test_a_machine_that_says_nothing_has_memory(tmp_path):
    (only,) = levels([0, 1], tmp_path, memory_bytes=1 << 40)
    assert only.name == "memory"
    assert only.test_bytes_per_thread == 32 * MIB


def test_damaged_files_are_left_out(machine):
    root = machine(("1", "Data", "big", "0"), ("x", "Data", "32K", "0"), ("2", "Unified", "1M", "zero"), DESKTOP[0])
    assert [level.name for level in levels([0], root, memory_bytes=1 << 40)] == ["L1", "memory"]


def test_this_machine():
    found = levels([0])
    assert found[-1].name == "memory"
    sizes = [level.test_bytes_per_thread for level in found]
    assert sizes == sorted(sizes)
