# SPDX-License-Identifier: MIT
"""The progress of a sweep on a terminal and in a log file."""

import io

import torch
from rich.console import Console

import dnnsuite


def shown(terminal):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
    x = torch.randn(16, 4)
    dnnsuite.sweep(
        lambda c: torch.nn.Linear(4, 2),
        {"lr": [0.1, 0.2]},
        (x, x[:, :2]),
        batch_size=8,
        out=False,
        console=console,
    )
    return console.file.getvalue()


def test_quiet_in_a_log_file():
    text = shown(False)
    assert text.count("\n") == 1
    assert "of 2 is the best: train_loss" in text


def test_on_a_terminal():
    assert "is the best" in shown(True)
