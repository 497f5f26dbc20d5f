# SPDX-License-Identifier: MIT
import pytest

from dnnsuite._runs.rates import Sample
from dnnsuite._runs.record import Moment, RunRecord, Verdict
from dnnsuite.training.processes import Processes
from dnnsuite.training.record import record_of, throughput
from tiny_training import experiment


def test_the_rate_leaves_out_the_start_and_what_is_between_windows():
    second = 1_000_000_000
    samples = [Sample(0, 0, 10 * second, 8, "warmup")]  # the first batch, in which everything starts
    samples += [Sample(0, start * second, (start + 1) * second, 100) for start in (10, 11, 50, 51)]
    rate, between = throughput(samples)
    assert rate == pytest.approx(100)
    assert between.why == "too short: 4 steps, and 50 show how neighbours correlate"
    assert throughput(samples[:1])[0] == pytest.approx(0.8)


def test_steps_of_unequal_length_are_weighted_by_time():
    """Three steps of .1, .1 and .4 s at batch 32 are 160 samples/s, not the mean of their rates."""
    starts_ms = [0, 100, 200]
    samples = [Sample(0, s * 10**6, (s + took) * 10**6, 32) for s, took in zip(starts_ms, (100, 100, 400), strict=True)]
    assert throughput(samples)[0] == pytest.approx(160)


def test_a_record_says_what_was_run():
    made = record_of(
        experiment(),
        Processes("cpu"),
        plan_id="p",
        preset="quick",
        started=Moment.now(),
        verdict=Verdict.good(),
        history=[
            {"epoch": 1, "loss/valid": 1.5, "acc1/valid": 0.5, "minutes": 2.0},
            {"epoch": 2, "loss/valid": 1.0, "acc1/valid": 0.25, "minutes": 3.0},
        ],
        samples=[],
        parameters=7,
        asked={},
        threads=1,
    )
    assert RunRecord.from_dict(made.to_dict()) == made
    assert (made.kind, made.mode, made.data, made.unit, made.seconds) == ("training", "serial", "points", "points", 180)
    found = {metric.name: metric.value for metric in made.metrics}
    assert found == {"loss/valid": 1.0, "acc1/valid": 0.25, "acc1/valid/best": 0.5, "minutes": 3.0}
    assert made.details["dropped_samples_per_epoch"] == 2
