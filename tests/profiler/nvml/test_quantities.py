# SPDX-License-Identifier: MIT

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite.profiler.nvml._quantities import DEFINITIONS, GPM_DEFINITIONS, energy_j


def test_a_ramp_has_the_area_of_a_triangle():
    assert energy_j([0, 10**9, 3 * 10**9], [0.0, 100.0, 300.0]) == pytest.approx([0.0, 50.0, 450.0])
    assert energy_j([], []) == []


@given(st.lists(st.tuples(st.integers(1, 10**10), st.floats(0, 1000)), min_size=1, max_size=30))
def test_energy_never_falls_and_is_between_least_and_most_power(steps):
    times, t = [], 0
    for gap, _ in steps:
        t += gap
        times.append(t)
    power = [watts for _, watts in steps]
    energy = energy_j(times, power)
    assert energy == sorted(energy)
    seconds = (times[-1] - times[0]) / 1e9
    assert min(power) * seconds <= energy[-1] * (1 + 1e-9) + 1e-9
    assert energy[-1] <= max(power) * seconds * (1 + 1e-9) + 1e-9


def test_names_are_defined_once_and_say_between_what():
    assert not set(GPM_DEFINITIONS) & set(DEFINITIONS)
    assert all(line.endswith("between this sample and the one before") for line in GPM_DEFINITIONS.values())
