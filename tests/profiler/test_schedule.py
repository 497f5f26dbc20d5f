# SPDX-License-Identifier: MIT
"""Schedules mean what torch's mean, step by step."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite import profiler
from dnnsuite.errors import InvalidArgument
from dnnsuite.profiler._schedule import Phase

TORCH = {
    torch.profiler.ProfilerAction.NONE: Phase.OFF,
    torch.profiler.ProfilerAction.WARMUP: Phase.WARMUP,
    torch.profiler.ProfilerAction.RECORD: Phase.ACTIVE,
    torch.profiler.ProfilerAction.RECORD_AND_SAVE: Phase.LAST,
}


@given(
    skip_first=st.integers(0, 5),
    wait=st.integers(0, 4),
    warmup=st.integers(1, 3),
    active=st.integers(1, 4),
    repeat=st.integers(0, 3),
)
def test_every_step_has_the_phase_that_torch_gives_it(**arguments):
    ours, theirs = profiler.schedule(**arguments), torch.profiler.schedule(**arguments)
    assert [ours(step) for step in range(60)] == [TORCH[theirs(step)] for step in range(60)]


@given(
    skip_first=st.integers(0, 5),
    wait=st.integers(0, 4),
    warmup=st.integers(0, 3),
    active=st.integers(1, 4),
    repeat=st.integers(1, 3),
)
def test_lengths_are_those_of_the_phases(**arguments):
    made = profiler.schedule(**arguments)
    phases = [made(step) for step in range(made.steps + 20)]
    assert sum(phase.kept for phase in phases) == arguments["active"] * arguments["repeat"]
    assert phases.index(Phase.ACTIVE if arguments["active"] > 1 else Phase.LAST) == made.first_active
    assert phases[made.steps - 1] is Phase.LAST
    assert not any(phase.on for phase in phases[made.steps :])


def test_the_words_of_tbd():
    made = profiler.schedule(start_iteration=1000, profile_iterations=200, warmup=10)
    assert [made(step) for step in (0, 989, 990, 999, 1000, 1198, 1199, 1200)] == [
        Phase.OFF,
        Phase.OFF,
        Phase.WARMUP,
        Phase.WARMUP,
        Phase.ACTIVE,
        Phase.ACTIVE,
        Phase.LAST,
        Phase.OFF,
    ]
    assert profiler.schedule(start_iteration=0, profile_iterations=1, warmup=3)(0) is Phase.LAST
    assert profiler.schedule(profile_iterations=7).steps == 17


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "active=..."),
        ({"active": 0}, "active must be a whole number, 1 or more; got 0"),
        ({"active": 2, "wait": -1}, "wait.*-1"),
        ({"active": True}, "active.*True"),
        ({"active": 1, "repeat": 1.5}, "repeat.*1.5"),
        ({"active": 2, "start_iteration": 3}, "one or the other"),
        ({"start_iteration": -3}, "start_iteration.*-3"),
    ],
)
def test_what_means_nothing_is_refused(arguments, words):
    with pytest.raises(InvalidArgument, match=words):
        profiler.schedule(**arguments)
