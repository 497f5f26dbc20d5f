# SPDX-License-Identifier: MIT
"""Peaks of a GPU, and the parts of their measurement that need none."""

import gpu_peaks
import pytest
import torch


def test_the_best_segment_counts():
    seconds = iter([0.02, 0.05, 0.04, 0.02, 0.06, 0.05, 0.05, 0.05])  # two calls to see how long one takes, segments
    counts = []

    def stopwatch(call, times):
        counts.append(times)
        return next(seconds)

    assert gpu_peaks.best_s(lambda: None, stopwatch) == pytest.approx(0.02 / 5)
    assert counts == [2, *[5] * 7]


def test_three_arrays_of_the_triad_fit():
    assert 3 * 4 * gpu_peaks.triad_elements(1000) <= 1000 < 3 * 4 * (gpu_peaks.triad_elements(1000) + 1)


@pytest.mark.gpu
def test_roofs():
    peaks = gpu_peaks.measure("cuda:0", lambda text: None)
    assert set(peaks.flops_per_s) == {"fp32", "bf16"}
    assert min(*peaks.flops_per_s.values(), *peaks.bytes_per_s.values()) > 0
    assert not peaks.contention.busy
    assert peaks.level_of(1) == "L2"
    assert peaks.level_of(1 << 40) == "memory"


@pytest.mark.gpu
def test_events_see_what_the_device_does():
    a = torch.randn(256, 256, device="cuda")
    assert gpu_peaks.event_seconds(lambda: a @ a, 3) > 0
