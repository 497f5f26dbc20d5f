# SPDX-License-Identifier: MIT
"""The progress of a sweep on a terminal and in a log file."""

import io

import torch
from rich.console import Console

import dnnsuite
from dnnsuite._shown import table_html
from dnnsuite.tuning.callbacks import in_notebook


def shown(terminal):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
    x = torch.randn(16, 4)
    dnnsuite.sweep(
        lambda c: torch.nn.Linear(4, 2), {"lr": [0.1, 0.2]}, (x, x[:, :2]), batch_size=8, out=False, console=console
    )
    return console.file.getvalue()


def test_quiet_in_a_log_file():
    text = shown(False)
    assert text.count("\n") == 1
    assert "of 2 is the best: train_loss" in text


def test_the_time_of_a_resumed_sweep_is_said_to_be_that(tmp_path):
    x = torch.randn(16, 4)
    how = {"batch_size": 8, "out": tmp_path / "out", "quiet": True}
    for resume in (False, True):
        sweep = dnnsuite.sweep(lambda c: torch.nn.Linear(4, 2), {"lr": [0.1, 0.2]}, (x, x[:, :2]), resume=resume, **how)
        assert ("since the resume" in sweep.describe()) == resume


def test_on_a_terminal():
    assert "is the best" in shown(True)


def test_a_notebook_has_a_table():
    assert not in_notebook()  # the notebook itself runs in tests/test_notebooks.py
    shown = table_html(["trial", "loss"], [["0", "<0.5"]], "1 running & 2 waiting")
    assert "<p>1 running &amp; 2 waiting</p>" in shown
    assert "<td>0</td><td>&lt;0.5</td>" in shown
