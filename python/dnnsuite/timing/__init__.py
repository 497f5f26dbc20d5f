# SPDX-License-Identifier: MIT
"""The timing core: one clock, a step timer, and the statistics that turn samples into a number with an interval.

Written in C++ (`cpp/base`, `cpp/host`); sees numpy arrays without copying them.
"""

from .._C import (
    Bootstrap,
    Comparison,
    Entropy,
    Fixed,
    Interval,
    Precision,
    RunningStatistics,
    StdRel,
    StepTimer,
    StopRule,
    Summary,
    Trend,
    Warmup,
    batch_means,
    bootstrap_mean,
    bootstrap_ratio,
    compare,
    mser5,
    now_ns,
    quantile,
    rate,
    student_t,
    summarise,
    trend,
)
from ._measure import RepeatNumber, abba, measure, measure_pairs
from ._spans import Contention, Span, Spans, decorated

__all__ = [
    "Bootstrap", "Comparison", "Contention", "Entropy", "Fixed", "Interval", "Precision", "RepeatNumber",
    "RunningStatistics", "Span", "Spans", "StdRel", "StepTimer", "StopRule", "Summary", "Trend", "Warmup", "abba",
    "batch_means", "bootstrap_mean", "bootstrap_ratio", "compare", "decorated", "measure", "measure_pairs", "mser5",
    "now_ns", "quantile", "rate", "student_t", "summarise", "trend",
]  # fmt: skip
