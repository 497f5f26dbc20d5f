# SPDX-License-Identifier: MIT
import re

import bench_loop
import pytest
import torch
from loop_workloads import WORKLOADS, losses_of


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_trains_as_a_loop_does(name):
    work = WORKLOADS[name]
    array, step = bench_loop.by_hand(work, 2, "sgd")
    loop = bench_loop.loop(work, 2, "sgd")
    step()
    loop()
    assert losses_of(array(work.batch(2))).shape == (2,)
    assert bench_loop.described(array)


def test_a_line_has_both_ratios(capsys):
    threads = torch.get_num_threads()
    try:
        assert bench_loop.main(["--models", "2", "--workloads", "tiny", "--rounds", "1"]) == 0
    finally:
        torch.set_num_threads(threads)
    line = capsys.readouterr().out
    assert re.match(r"tiny +loop +[\d.]+ ms +hand +[\d.]+x +run +[\d.]+x .*\| captured: ", line)
