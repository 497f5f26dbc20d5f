# SPDX-License-Identifier: MIT
import re
from itertools import pairwise

import numpy as np
import pytest

from dnnsuite._runs.rates import Steps
from dnnsuite._runs.record import Device, Machine, Moment, RunRecord, Verdict
from dnnsuite.profiling.throughput_files import log_lines


def record(dropped: int) -> RunRecord:
    return RunRecord(
        "a" * 32, "throughput", "b" * 32, "throughput of toy", "toy", "serial", "fp32", 1, 0, Verdict.good(), Machine(),
        Device("cpu"), Moment.now(), "images", batch_size=32, items_per_step=32.0, window={"dropped": dropped},
    )  # fmt: skip


def steps(*seconds: float, number: int = 1) -> Steps:
    stops = np.cumsum([round(each * 1e9) for each in seconds])
    starts = np.concatenate([[0], stops[:-1]])
    return Steps(starts, stops, np.full(len(stops), 32 * number), np.zeros(len(stops), np.int64))


def test_the_mean_is_items_over_time_and_not_the_mean_of_rates() -> None:
    """Steps of .1 .1 .4 s at batch 32: 160 samples/s, where the original's mean of rates says 240."""
    (line,) = [line for line in log_lines(steps(0.1, 0.1, 0.4), record(0)) if line.startswith("Epoch")]
    assert line == "Epoch: [0][3/3]\tTime  0.400 ( 0.200)\tBatch throughput 80.000 (160.000) samples/s"


def test_warm_up_is_in_the_history_and_not_in_the_mean() -> None:
    lines = list(log_lines(steps(5.0, 0.1, 0.1), record(1)))
    assert lines[0] == "TimeHistory: 5.00 seconds, 6.40 examples/second between steps 0 and 1"
    assert "( 0.100)" in next(line for line in lines if line.startswith("Epoch"))


@pytest.mark.parametrize(("number", "count"), [(1, 1000), (10, 100), (7, 30)])
def test_windows_are_a_hundred_iterations_and_leave_none_out(number: int, count: int) -> None:
    lines = "\n".join(log_lines(steps(*[0.01] * count, number=number), record(0)))
    edges = [(int(a), int(b)) for a, b in re.findall(r"steps (\d+) and (\d+)", lines)]
    assert edges[0][0] == 0
    assert edges[-1][1] == number * count
    assert all(before[1] == after[0] for before, after in pairwise(edges))
    if number * count == 1000:
        assert edges == [(i, i + 100) for i in range(0, 1000, 100)]
        assert lines.count("Epoch: ") == 100
