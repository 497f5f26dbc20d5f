# SPDX-License-Identifier: MIT
"""The memory of this process, as the kernel tells it."""

import mmap
import os

import pytest

from dnnsuite.profiler.memory._process import begin_peak, level


def test_the_peak_holds_what_was_there_for_a_moment():
    begin_peak("cpu")
    before = level("cpu")
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("the kernel does not let the peak be reset")
    with mmap.mmap(-1, 64 << 20) as held:  # from the kernel, not from what others have freed
        held.write(b"1" * len(held))
    after = level("cpu")
    assert after.peak - before.peak > 50 << 20
    assert after.current < after.peak
    begin_peak("cpu")
    assert level("cpu").peak < after.peak
