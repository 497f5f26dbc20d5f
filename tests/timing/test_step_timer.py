# SPDX-License-Identifier: MIT
"""The clock, the step timer and its views, and heap retention as Python sees them."""

import gc
import os
import platform
import subprocess
import sys
import time

import numpy as np
import pytest

from dnnsuite import timing
from dnnsuite.errors import Error, InvalidArgument


def filled(count):
    timer = timing.StepTimer(count)
    timer.start()
    for i in range(count):
        timer.lap(i)
    return timer


def test_the_clock_is_pythons_monotonic_clock():
    readings = [time.monotonic_ns(), timing.now_ns(), time.monotonic_ns(), timing.now_ns()]
    assert readings == sorted(readings)


def test_steps_are_dated_and_counted():
    timer = timing.StepTimer(capacity=4)
    before = timing.now_ns()
    timer.start()
    timer.stop(items=32)
    timer.start()
    timer.stop(items=16)
    edges = np.stack([timer.starts_ns, timer.stops_ns], axis=1).ravel()
    assert (np.diff([before, *edges, timing.now_ns()]) >= 0).all()
    assert timer.items.tolist() == [32, 16]
    assert (len(timer), timer.count, timer.capacity) == (2, 2, 4)


def test_a_lap_leaves_no_gap():
    timer = filled(5)
    assert (timer.stops_ns[:-1] == timer.starts_ns[1:]).all()


def test_views_share_the_timers_memory():
    timer = filled(3)
    for name in ("starts_ns", "stops_ns", "items"):
        first, again = getattr(timer, name), getattr(timer, name)
        assert first.base is timer
        assert not first.flags.owndata
        assert first.__array_interface__["data"] == again.__array_interface__["data"]
        assert first.dtype == np.int64
    taken = timer.items
    timer.clear()
    timer.start()
    timer.stop(99)
    assert taken[0] == 99  # the view sees what is written later: no copy was made


def test_views_cannot_be_written():
    view = filled(2).items
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1


def test_views_keep_the_timer_alive():
    items = filled(1000).items
    gc.collect()
    others = [filled(1000) for _ in range(20)]  # would be given the timer's memory, had it been freed
    assert items.tolist() == list(range(1000))
    assert len(others) == 20


def test_views_hold_the_steps_so_far():
    timer = timing.StepTimer(10)
    assert timer.items.shape == (0,)
    timer.start()
    timer.stop(1)
    assert timer.items.shape == (1,)


def test_a_full_timer_is_an_error_that_keeps_the_steps():
    timer = filled(2)
    with pytest.raises(Error, match="full: it holds the 2 steps"):
        timer.stop(7)
    assert timer.items.tolist() == [0, 1]


def test_a_step_ends_only_once():
    timer = timing.StepTimer(2)
    with pytest.raises(Error, match="never begun"):
        timer.stop(1)


def test_a_negative_capacity_is_refused():
    with pytest.raises(InvalidArgument, match="negative, as -3"):
        timing.StepTimer(-3)


_FAULTS = """
import ctypes, resource
import numpy as np
from dnnsuite import _C
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        np.full(1 << 20, 1.0)  # 8 MiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
fresh = faults()
assert _C.heap_retain() and _C.heap_retain()
faults()
kept = faults()
assert _C.heap_release()
print(fresh, kept, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer brings its own malloc")
def test_retained_memory_is_not_faulted_again():
    """In a process of its own: the heap belongs to everyone in this one."""
    result = subprocess.run([sys.executable, "-c", _FAULTS], capture_output=True, text=True, check=True)
    fresh, kept, released = map(int, result.stdout.split())
    assert kept < 10 < min(fresh, released)
