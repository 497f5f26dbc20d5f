# SPDX-License-Identifier: MIT
import io

from rich.console import Console

from dnnsuite._runs.progress import Progress
from dnnsuite.training.lines import Log


def test_lines_are_in_the_file_and_on_the_screen(tmp_path):
    screen = io.StringIO()
    with Log(tmp_path, Progress(Console(file=screen, width=200))) as log:
        log.begin("bs128", 100, 0)
        log.at(50, 100, "epoch 1/2  300 img/s")  # nothing where there is no terminal
        log.info("Epoch: 1, Iteration: 20, Avg img/sec: 300.5")
    assert (tmp_path / "train.log").read_text() == "INFO - Epoch: 1, Iteration: 20, Avg img/sec: 300.5\n"
    assert screen.getvalue() == "training bs128\nINFO - Epoch: 1, Iteration: 20, Avg img/sec: 300.5\n"


def test_a_terminal_has_a_bar_with_the_rate_and_the_time_left(tmp_path):
    screen = io.StringIO()
    with Log(tmp_path, Progress(Console(file=screen, width=120, force_terminal=True))) as log:
        log.begin("bs128", 100, 0)
        log.at(50, 100, "epoch 1/2  300 img/s")
        log.info("a line")
    shown = screen.getvalue()
    assert "0/100" in shown
    assert "a line" in shown


def test_a_process_that_is_not_the_first_is_silent(tmp_path):
    screen = io.StringIO()
    with Log(None, Progress(Console(file=screen))) as log:
        log.begin("bs128", 100, 0)
        log.info("nothing")
        log.at(1, 100, "nothing")
    assert screen.getvalue() == ""
