# SPDX-License-Identifier: MIT
import io

import pytest
from rich.console import Console

from dnnsuite.workflow.launch import Point
from dnnsuite.workflow.progress import Durations, Progress, clock_text


def test_expectations() -> None:
    durations = Durations()
    assert durations.expect_s(Point("hfta", "fp32", 1)) is None
    assert durations.expect_all_s([Point("hfta", "fp32", 1)]) is None
    durations.add(Point("hfta", "fp32", 2), 10.0)
    durations.add(Point("hfta", "fp32", 2), 14.0)
    assert durations.expect_s(Point("hfta", "fp32", 2)) == 12
    four = durations.expect_s(Point("hfta", "fp32", 4))
    assert four is not None
    assert 12 < four <= 24
    assert durations.expect_s(Point("serial", "fp32", 1)) == 12  # nothing better is known
    assert durations.expect_all_s([Point("hfta", "fp32", 2), Point("serial", "fp32", 1)]) == 24
    assert durations.expect_all_s([]) == 0


def test_plain_lines_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    with Progress(Console(file=out, width=40)) as progress:
        progress.stage("2 runs", 2)
        progress.now("hfta B=2", 75.0)
        progress.tick()
        progress.done("[1/2] hfta fp32 B=2 repeat 1: 12.5 sequences/s in 3.0 s")
    lines = out.getvalue().splitlines()
    assert lines[0] == "2 runs"
    assert lines[1].startswith("[1/2] hfta fp32 B=2 repeat 1: 12.5 sequences/s in 3.0 s  ETA 1:1")
    assert len(lines) == 2


def test_a_terminal_has_a_live_bar() -> None:
    out = io.StringIO()
    with Progress(Console(file=out, width=100, force_terminal=True)) as progress:
        progress.stage("runs", 2)
        progress.now("hfta B=2", 75.0)
        progress.done("[1/2] done")
    assert "hfta B=2" in out.getvalue()
    assert "1/2" in out.getvalue()


def test_quiet_is_quiet() -> None:
    out = io.StringIO()
    with Progress(Console(file=out, force_terminal=True), quiet=True) as progress:
        progress.stage("runs", 2)
        progress.done("[1/2] done")
    assert out.getvalue() == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (75, "1:15"), (3599.6, "1:00:00"), (3700, "1:01:40")]
)
def test_clock(seconds: float, text: str) -> None:
    assert clock_text(seconds) == text
