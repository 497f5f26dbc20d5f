# SPDX-License-Identifier: MIT
"""The roof of a step, and which of the array's operators lose the most against theirs."""

import pandas as pd
import pytest
import step_roof
import torch
from setting import Setting
from step_roof import BETWEEN, Gap
from workloads import Workload


def test_the_roof_of_a_step_is_the_sum_over_its_operators(peaks):
    """Two products of 24 FLOPs at 100 a second: 0.48 s; the rest is bytes at 50 a second."""
    workload = Workload(
        "one",
        lambda: torch.nn.Linear(3, 2, bias=False),
        lambda: (torch.randn(2, 3),),
        lambda model, x: model(x).sum(),
        None,
        None,
    )
    found = step_roof.least_seconds(workload, Setting(), peaks)
    bytes_of_adam = 4 * 6 * 7
    assert found > 2 * 0.24 + bytes_of_adam / 50
    slower = step_roof.least_seconds(workload, Setting(), faster(peaks, 0.5))
    assert slower == pytest.approx(2 * found)


def faster(peaks, factor):
    from dataclasses import replace

    return replace(
        peaks,
        flops_per_s={key: factor * value for key, value in peaks.flops_per_s.items()},
        bytes_per_s={key: factor * value for key, value in peaks.bytes_per_s.items()},
    )


def test_a_roof_is_lengthened_by_what_the_neighbours_take(peaks):
    at_best = 2 * 1024**3 / 100
    assert step_roof.paced(3.0, [at_best, 2 * at_best, 0.9 * at_best], peaks) == pytest.approx([3, 6, 3])
    assert step_roof.product(Setting())(1) is None


def ops(*rows):
    names = ["name", "phase", "step", "thread", "t0_ns", "t1_ns", "self_ns", "flops", "bytes", "counted"]
    table = pd.DataFrame(rows, columns=names)
    table["class"], table["dtype"], table["depth"] = "gemm", "float", 0
    return table


def test_gaps_are_of_the_least_step_and_of_one_model(peaks):
    """A product whose roof is 1 s; something of unknown work, whose inside is not counted again; the step around."""
    table = ops(
        ("step", "forward", 0, 1, 0, 10e9, 1e9, 0, float("nan"), False),
        ("aten::mm", "forward", 0, 1, 0, 4e9, 4e9, 100, 10.0, True),
        ("aten::inner", "forward", 0, 1, 1e9, 2e9, 1e9, 0, float("nan"), False),
        ("aten::unknown", "backward", 0, 1, 4e9, 9e9, 5e9, 0, float("nan"), False),
        ("step", "forward", 1, 1, 10e9, 15e9, 1e9, 0, float("nan"), False),
        ("aten::mm", "forward", 1, 1, 10e9, 12e9, 2e9, 100, 10.0, True),
        ("aten::unknown", "backward", 1, 1, 12e9, 14e9, 2e9, 0, float("nan"), False),
    )
    steps = pd.DataFrame({"step": [0, 1], "wall_ns": [10e9, 5e9], "cpu_ns": [10e9, 5e9]})
    found = step_roof.gaps_of(table, steps, peaks, B=2)
    assert [gap[:2] for gap in found] == [("aten::unknown", "backward"), ("aten::mm", "forward"), (BETWEEN, "")]
    assert [gap.seconds for gap in found] == pytest.approx([1.0, 1.0, 0.5])
    assert [gap.least_s for gap in found] == pytest.approx([0.0, 0.5, 0.0])


def test_gaps_in_words():
    found = [Gap("aten::mm", "backward", 6.0, 2.0), Gap(BETWEEN, "", 3.0, 0.0), Gap("aten::near", "", 1.0, 0.9)]
    text = step_roof.sentence(found)
    assert "aten::mm backward 40 % (the library's products); between operators 30 % (small operators:" in text
    assert step_roof.why("aten::cat") == step_roof.why(BETWEEN) != step_roof.why("aten::mm")
    assert "near" not in step_roof.sentence(found)
    head, *lines = step_roof.lines(found)
    assert "its roof" in head
    assert lines[0].split()[-4:] == ["6000.000", "2000.000", "40.0", "%"]
