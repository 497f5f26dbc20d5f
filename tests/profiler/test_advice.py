# SPDX-License-Identifier: MIT
"""Rules of advice: each fires on the figures it is for, says them, and not on others."""

import dataclasses
import os

import pytest

from dnnsuite import profiler
from dnnsuite.profiler._advice import Facts, advise, cpu_busy_pct, displaced_pct, facts
from dnnsuite.profiler.phases import OptimizerSeen
from profiler_loops import Operators, loop

CASES = [
    ("data-wait", Facts({"data wait": 40.0}, loader_workers=0), "40 %", "num_workers=2"),
    ("data-wait", Facts({"data wait": 40.0}, loader_workers=3), "40 %", "has 3 workers"),
    ("data-wait", Facts({"data wait": 40.0}), "40 %", "ahead of time"),
    ("host-bound", Facts({"host": 35.0}), "35 %", "StepRunner"),
    ("host-bound", Facts({"host": 35.0}, models=8), "35 %", "raise B"),
    ("host-bound", Facts({"host": 35.0}, on_gpu=True), "no kernel", "CUDA graph"),
    ("small-operators", Facts({"gemm": 40.0}, ops_per_step=900, mean_op_us=5.0), "900 operators", "fuse"),
    ("memory-bound", Facts({"elementwise": 20.0, "norm": 9.0}), "elementwise 20 %, norm 9 %", "torch.compile"),
    ("copies", Facts({"copy": 12.0}), "12 %", "contiguous"),
    ("optimizer", Facts({"optimizer": 15.0}), "15 %", "fused=True"),
    ("compute-bound", Facts({"gemm": 40.0, "conv": 30.0}), "70 %", "roofline"),
    ("compute-bound", Facts({"gemm": 70.0}, on_gpu=True, precision="fp32"), "70 %", "--precision amp"),
    ("compiled", Facts({"compiled": 88.0}, compiled=True), "88 %", "output_code"),
    ("custom", Facts({"custom": 70.0}), "70 %", "ops_by_name"),
    ("unknown", Facts({"other": 30.0}), "30 %", "class other"),
    ("communication", Facts({"communication": 11.0}), "11 %", "buckets"),
    ("idle", Facts({"idle": 22.0}), "22 %", ".item()"),
    ("contended", Facts({}, displaced_pct=55.0), "55 %", "dnnsuite pin"),
    ("idle-cpus", Facts({"gemm": 9.0}, cpu_busy_pct=30.0, cpus=8), "30 % of its 8 CPUs", "larger batch"),
    ("perturbed", Facts({}, overhead_pct=80.0), "80 %", "shares"),
    ("feature-maps", Facts({}, memory_shares={"feature maps": 80.0}), "80 %", "checkpoint"),
]


@pytest.mark.parametrize(("rule", "facts", "figures", "words"), CASES)
def test_a_rule_fires_and_says_why(rule, facts, figures, words):
    found = {advice.rule: advice for advice in advise(facts, most=99)}
    assert figures in found[rule].because
    assert "rule: " in found[rule].because
    assert words in found[rule].action


@pytest.mark.parametrize(("rule", "facts", "figures", "words"), CASES)
def test_it_does_not_fire_on_a_tenth_of_that(rule, facts, figures, words):
    less = dataclasses.replace(
        facts,
        shares={name: value / 10 for name, value in facts.shares.items()},
        memory_shares={name: value / 10 for name, value in facts.memory_shares.items()},
        ops_per_step=(facts.ops_per_step or 0) / 10,
        overhead_pct=(facts.overhead_pct or 0) / 10,
        displaced_pct=(facts.displaced_pct or 0) / 10,
        cpu_busy_pct=90.0,
    )
    assert rule not in {advice.rule for advice in advise(less, most=99)}


RUNS = [
    (Facts({"host": 60.0, "elementwise": 30.0}, compiled=True), "torch.compile"),
    (Facts({"host": 60.0}, on_gpu=True, graphs=True), "CUDA graph"),
    (Facts({"optimizer": 60.0}, optimizer=OptimizerSeen("torch.optim.AdamW", True)), "fused=True"),
    (Facts({"gemm": 90.0, "elementwise": 30.0}, on_gpu=True, precision="amp"), "amp"),
    (Facts({"elementwise": 60.0}), "channels_last"),  # there is no convolution
    (Facts({"idle": 30.0}, displaced_pct=28.0), "sleeps"),  # others have the CPU
    (Facts({"communication": 60.0}, cpu_busy_pct=20.0, cpus=8), "give threads more to do"),
]


@pytest.mark.parametrize(("facts", "words"), RUNS)
def test_nothing_is_advised_that_the_run_does_already_or_that_is_not_the_culprit(facts, words):
    assert all(words not in advice.action for advice in advise(facts, most=99))


def test_the_largest_share_comes_first_and_there_is_always_something():
    found = advise(Facts({"data wait": 12.0, "host": 50.0, "idle": 30.0}))
    assert [advice.rule for advice in found] == ["host-bound", "idle", "data-wait"]
    assert [advice.rule for advice in advise(Facts({"gemm": 9.0}))] == ["balanced"]


def test_of_a_busy_machine_idle_cpus_are_not_advice():
    facts = Facts({}, cpu_busy_pct=20.0, cpus=2, displaced_pct=70.0)
    assert [advice.rule for advice in advise(facts)] == ["contended"]


def test_doubts_come_after_what_there_is_to_do_and_are_never_cut():
    shares = {"data wait": 20.0, "host": 20.0, "idle": 20.0, "copy": 20.0, "optimizer": 20.0}
    rules = [advice.rule for advice in advise(Facts(shares, overhead_pct=90.0))]
    assert len(rules) == 5
    assert rules[-1] == "perturbed"


def test_facts_of_a_loop():
    with profiler.profile(instruments=[Operators()], about={"precision": "fp32", "B": 4}) as p:
        loop(p, 3)
    found = facts(p)
    assert found.shares == dict(zip(p.breakdown["class"], p.breakdown["share_pct"], strict=True))
    assert (found.ops_per_step, found.mean_op_us) == pytest.approx((3, 500))
    assert (found.precision, found.models, found.on_gpu) == ("fp32", 4, False)
    assert found.overhead_pct is None
    assert found.cpus == len(os.sched_getaffinity(0))


def test_a_loop_that_computes_in_one_thread_keeps_at_most_its_cpus_busy():
    with profiler.profile() as p:
        loop(p, 3, 20_000_000)
    assert 0 < cpu_busy_pct(p) <= 101
    assert 0 <= displaced_pct(p) <= 101


def test_of_nothing_there_is_no_figure():
    with profiler.profile(schedule=profiler.schedule(start_iteration=9)) as p:
        pass
    assert cpu_busy_pct(p) is None
    assert displaced_pct(p) is None
