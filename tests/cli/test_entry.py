# SPDX-License-Identifier: MIT
"""Installed commands: the names in pyproject.toml exist, and Ctrl-C while they are imported is no traceback."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dnnsuite.cli import entry

INTERRUPTED = """
import importlib, os, signal
from dnnsuite.cli import entry
signal.signal(signal.SIGINT, signal.{handler})
importlib.import_module = lambda *names: os.kill(os.getpid(), signal.SIGINT) or os
os.main = lambda: print("went on")
entry.dnnsuite()
"""


def interrupted(handler):
    code = INTERRUPTED.format(handler=handler)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)


def test_ctrl_c_during_the_imports_is_one_line():
    ended = interrupted("default_int_handler")
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "dnnsuite: interrupted by SIGINT\n")


def test_a_process_that_ignores_ctrl_c_goes_on():
    ended = interrupted("SIG_IGN")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "went on\n", "")


def test_the_handler_is_put_back(capsys):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit):
        entry.dnnsuite(["--version"])
    assert signal.getsignal(signal.SIGINT) is before
    assert capsys.readouterr().out.startswith("dnnsuite ")


def test_every_entry_point_is_named_in_the_project():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert all(f'"dnnsuite.cli.entry:{name}"' in text for name in entry.__all__)
