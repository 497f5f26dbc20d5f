# SPDX-License-Identifier: MIT
import errno
import io

import pytest
from rich.console import Console

from dnnsuite._runs.progress import Durations, Progress, clock_text


def told(terminal: bool, quiet: bool = False, rows: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=terminal, legacy_windows=False)
    with Progress(console, quiet) as progress:
        if rows:
            progress.rows(("job", "state"), ["vae", "wlm"])
        progress.stage("2 runs", 2)
        if rows:
            progress.row("vae", state="sets up")
        progress.now("hfta B=2", 75.0)
        progress.tick()
        progress.done("[1/2] hfta fp32 B=2 repeat 1: 12.5 sequences/s in 3.0 s", 75.0)
        progress.done("[2/2] serial", 0.0)
    return out.getvalue()


@pytest.mark.parametrize("rows", [False, True])
def test_a_log_file_gets_a_line_for_each_thing_that_ended_with_the_time_left(rows: bool) -> None:
    first, second, third = told(terminal=False, rows=rows).splitlines()
    assert first == "2 runs"
    assert second == "[1/2] hfta fp32 B=2 repeat 1: 12.5 sequences/s in 3.0 s  ETA 1:15"
    assert third == "[2/2] serial"


def test_a_terminal_has_a_bar_and_a_table_if_there_is_one() -> None:
    said = told(terminal=True, rows=True)
    for words in ("hfta B=2", "1/2", "ETA 1:15", "vae", "sets up", "[2/2] serial"):
        assert words in said
    assert "vae" not in told(terminal=True)


def test_quiet_is_quiet() -> None:
    assert told(terminal=True, quiet=True, rows=True) == told(terminal=False, quiet=True) == ""


def test_runs_take_what_others_took() -> None:
    durations: Durations[str] = Durations()
    assert durations.expect_s(["a"]) is None
    assert durations.expect_s([]) == 0
    for key, seconds in (("a", 10.0), ("a", 20.0), ("b", 5.0)):
        durations.add(key, seconds)
    assert durations.expect_s(["a", "b", "c"]) == 15.0 + 5.0 + 10.0


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (75, "1:15"), (3599.6, "1:00:00"), (3700, "1:01:40")])
def test_clock(seconds: float, text: str) -> None:
    assert clock_text(seconds) == text


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(errno.ENOSPC, "No space left on device"), ValueError()])
def test_a_screen_that_is_gone_ends_no_run(error: Exception, terminal: bool) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise error

    console = Console(file=Gone(), width=100, force_terminal=terminal, legacy_windows=False)
    with Progress(console) as progress:
        progress.rows(("job", "state"), ["vae"])
        progress.stage("2 runs", 2)
        for _ in range(2):
            progress.now("hfta B=2", 75.0)
            progress.done("[1/2] hfta")
        ended = True
    assert ended
