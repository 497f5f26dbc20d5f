# SPDX-License-Identifier: MIT
"""The page of text: what a stranger must find in it."""

import math

import pytest

from dnnsuite import profiler
from dnnsuite.profiler._breakdown import DEFINITIONS
from dnnsuite.profiler.summary import rate
from profiler_loops import Operators, loop


def observe(steps=9, **arguments):
    about = {"job": "toy", "batch_size": 3, "items_per_step": 3, "unit": "rows", "device": "cpu", "B": 2}
    with profiler.profile(instruments=[Operators()], about=about, **arguments) as p:
        loop(p, steps)
    return p


def test_everything_is_on_the_page():
    p = observe(schedule=profiler.schedule(wait=2, active=2, repeat=2))
    page = p.summary()
    assert page.startswith("profile of toy (batch size 3, B=2, cpu)\n")
    for words in ("rows/s (no interval: too short: 5 values", "5 steps without instruments",
                  "4 steps in 2 windows, from step 2", "overhead",
                  "per step (4 steps with and 5 without, 2 windows)", "100.0 %", "aten::addmm", "what to do next",
                  "because", "2 records were dropped"):  # fmt: skip
        assert words in " ".join(page.split()) or words in page
    for name in p.breakdown["class"]:
        assert DEFINITIONS[name] in " ".join(page.split())
    assert max(map(len, page.splitlines())) <= 80


def test_the_rate_is_that_of_quiet_steps_where_there_are_any():
    with_quiet, without = observe(schedule=profiler.schedule(wait=2, active=2, repeat=2)), observe(3)
    assert (rate(with_quiet).quiet, rate(with_quiet).steps) == (True, 5)
    assert (rate(without).quiet, rate(without).steps) == (False, 3)
    assert rate(without).steps_per_s == pytest.approx(3 / sum((s.t1_ns - s.t0_ns) * 1e-9 for s in without.active))
    assert math.isnan(rate(without).low)
    assert rate(without).why == "too short: 3 values, and 50 show how neighbours correlate"
    assert "under the instruments" in without.summary()
    assert "overhead     not measured" in without.summary()


def test_what_was_not_to_be_had_is_said():
    p = observe(2)
    p.absent.append(profiler.instrument.Absent("nvml", "no NVIDIA driver", "install one"))
    assert "nvml         unavailable: no NVIDIA driver; install one" in p.summary()


def test_memory_is_on_the_page_per_model_too():
    import torch

    from dnnsuite.profiler.memory import MemoryInstrument

    with profiler.profile(instruments=[MemoryInstrument(models=2)]) as p:
        loop(p, 2, 0, torch.nn.Linear(4, 2))
    page = p.summary()
    assert "memory at its peak in a step" in page
    assert "optimizer state           0.000 MB" in page
    assert "MB per model)" in page
