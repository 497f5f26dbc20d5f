# SPDX-License-Identifier: MIT
"""The original's table and statistics, on the numbers of its README."""

import math
import statistics as stdlib

import hypothesis.strategies as st
import pytest
from hypothesis import given
from scipy import stats

from dnnsuite import report
from dnnsuite.report import _score
from dnnsuite.report._entries import ReportEntry

README = """\
                             target         result           sd       sd%      diff
bench                                                                              
atari                          5.41       7.424253     0.055735  0.007507  0.372320
cart                        2000.00    2195.248475     6.457116  0.002941  0.097624
convnet                      178.76     175.973774     0.191682  0.001089 -0.015586
convnet_distributed          276.10     756.841070    60.333975  0.079718  1.741185
convnet_distributed_fp16     330.41     785.470579    43.330802  0.055165  1.377260
convnet_fp16                 262.56     329.347550     0.770485  0.002339  0.254371
dcgan                        115.52     147.794385     0.632454  0.004279  0.279384
dcgan_all                    139.29     274.608760     1.361280  0.004957  0.971489
fast_style                   156.75     146.285007     0.218744  0.001495 -0.066762
loader                      1200.00    1188.224303    62.070805  0.052238 -0.009813
recom                      20650.19   20802.705368   103.476919  0.004974  0.007386
reso                         138.34     178.694817     0.920870  0.005153  0.291708
ssd                           59.96      49.263719     0.203476  0.004130 -0.178390
toy_lstm                       2.65       1.254635     0.007228  0.005761 -0.526553
toy_reg                   368820.18  215482.487073  3745.776792  0.017383 -0.415752
translator                   223.47     212.040509     0.443492  0.002092 -0.051146
vae                         7972.69    5931.232565    26.450238  0.004459 -0.256056
wlm                         1440.87    1365.497700     2.910483  0.002131 -0.052310
wlmfp16                     3793.37    4649.460342    18.698980  0.004022  0.225681
--

Statistics               |     Value | Pass |
-------------------------|-----------|------|
Bench Passes             :           | True |
Deviation Quantile (80%) : +1.1458 % | True |
Performance              : +0.2129   | True |
--"""  # noqa: W291


def test_the_readme_to_the_digit(mila_tree):
    made = report.make([mila_tree], "baselines", "RTX")
    # pandas spells the last digits of a recomputed quotient; the README's own were rounded once more.
    ours, theirs = report.style_seed(made).splitlines(), README.splitlines()
    assert ours[20:] == theirs[20:] + ours[20 + len(theirs[20:]) :]
    for mine, row in zip(ours[2:21], theirs[2:21], strict=True):
        assert mine.split()[:4] == row.split()[:4]
        assert [float(x) for x in mine.split()[4:]] == pytest.approx([float(x) for x in row.split()[4:]], abs=2e-6)
    assert made.passed


def entries(rates_of_runs, job="vae"):
    return [
        ReportEntry(job=job, run=str(run), device=str(device), rate=rate, seed_rate=rate)
        for run, rates in enumerate(rates_of_runs)
        for device, rate in enumerate(rates)
    ]


def test_devices_are_pooled_before_runs():
    table = _score.seed_table(entries([[1, 3], [4, 4], [5, 7], [8, 10]]), None)
    assert table.loc["vae", "result"] == 5.0  # of 2, 4, 6, 9
    assert table.loc["vae", "sd"] == pytest.approx(stdlib.stdev([2, 4, 6, 9]))


def test_fewer_than_four_runs_have_no_statistics():
    table = _score.seed_table(entries([[1.0], [2.0], [3.0]]), None)
    assert math.isnan(table.loc["vae", "result"])
    passes, deviation = _score.statistics(table, jobs=1)
    assert not passes.passed
    assert not deviation.passed


def test_failed_entries_do_not_count():
    four = entries([[1.0], [2.0], [3.0], [4.0]])
    bad = ReportEntry(job="vae", run="4", device="1", rate=math.nan, seed_rate=math.nan, failure="oom")
    assert _score.seed_table([*four, bad], None).equals(_score.seed_table(four, None))


@given(st.lists(st.floats(0.1, 1e6), min_size=3, max_size=30))
def test_trimmed_mean_is_scipys(values):
    assert _score.trimmed_mean(values) == pytest.approx(stats.trim_mean(values, 1 / len(values) + 1e-9), rel=1e-6)
