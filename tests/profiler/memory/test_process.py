# SPDX-License-Identifier: MIT
"""The memory of this process, as the kernel tells it."""

import os

import numpy as np
import pytest

from dnnsuite.profiler.memory._process import begin_peak, level


def test_the_peak_holds_what_was_there_for_a_moment():
    begin_peak("cpu")
    before = level("cpu")
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("the kernel does not let the peak be reset")
    held = np.ones(64 << 20, dtype=np.uint8)
    del held
    after = level("cpu")
    assert after.peak - before.peak > 50 << 20
    assert after.current < after.peak
    begin_peak("cpu")
    assert level("cpu").peak < after.peak
