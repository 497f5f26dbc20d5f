# SPDX-License-Identifier: MIT
"""Advice from figures that were made up, so that the right answer is known."""

import json

import pytest

from dnnsuite.advisor.advice import Limits, Measured, concluded

NO_LIMITS = Limits()


def near(seconds, error=0.01):
    return Measured(seconds, seconds * (1 - error), seconds * (1 + error))


def advice(law, plain=1.0, alone=None, threads=1, limits=NO_LIMITS, trials=16, error=0.01):
    arrays = {B: near(law(B), error) for B in (1, 2, 4)}
    return concluded(near(plain, error), arrays, alone and near(alone), threads, limits, trials, 100)


def test_an_array_that_pays():
    found = advice(lambda B: 0.8 + 0.05 * B)
    assert found.mode == "hfta"
    assert found.B >= 16
    assert found.low < found.gain < found.high
    assert found.curve("hfta").at(4).measured
    assert not found.curve("hfta").at(8).measured
    assert found.curve("hfta").at(8).gain == pytest.approx(8 / 1.2, rel=0.02)
    assert found.sweep_s["serial"] == pytest.approx(1600)
    assert found.sweep_s["hfta"] < 400
    told = str(found)
    assert f"Use hfta with B={found.B}: {found.gain:.2f} times serial" in told
    assert "A sweep of 16 trials of 100 steps: serial 26.7 min" in told
    assert json.loads(json.dumps(found.to_dict()))["mode"] == "hfta"


def test_an_array_that_does_not():
    found = advice(lambda B: 1.3 * B)
    assert (found.mode, found.B, found.gain) == ("serial", 1, 1.0)
    assert "nothing that trains several models at once is faster" in found.reason


def test_a_gain_within_the_noise_is_none():
    found = advice(lambda B: 0.97 * B, error=0.2)
    assert found.mode == "serial"
    assert "includes no gain" in found.reason


def test_memory_bounds_the_array():
    found = advice(lambda B: 0.8 + 0.05 * B, limits=Limits(model_bytes=100, free_bytes=650))
    assert max(point.B for point in found.curve("hfta").points) == 4
    assert "at most 6 models fit" in found.reason


def test_processes_side_by_side_may_be_better():
    found = advice(lambda B: 1.1 * B, alone=1.05, threads=4)
    assert found.mode == "concurrent"
    assert found.B == 4
    assert found.gain == pytest.approx(4 / 1.05 * (1 + 0.85) / 2, rel=0.01)
    assert advice(lambda B: 0.1 * B, alone=1.05, threads=4).mode == "hfta"


def test_the_last_round_of_a_sweep_has_fewer_models():
    whole, rest = (advice(lambda B: float(B), trials=trials).sweep_s["hfta"] for trials in (4, 5))
    assert rest > whole
    assert advice(lambda B: 0.8 + 0.05 * B, trials=1).sweep_s["hfta"] == pytest.approx(85)


def test_what_is_not_known_is_no_advice():
    advice = concluded(
        near(1.0), {1: near(1.0), 2: near(1.0)}, None, 2, Limits(), 16, 10, "2 cores", "the machine was busy: others"
    )
    assert not advice.conclusive
    assert str(advice) == "Inconclusive, the machine was busy: others. Ask again when it is quieter."
    assert advice.mode == "serial"
    assert (advice.to_dict()["gain"], advice.to_dict()["low"]) == (None, None)
