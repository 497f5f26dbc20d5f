# SPDX-License-Identifier: MIT
import subprocess
import sys

import pytest

from dnnsuite._runs.failures import DISK_EXIT, attempt
from dnnsuite._runs.spec import import_plugins

CODE = """
import atexit, sys
from dnnsuite._runs.failures import leave

sys.stdout = open(1, "w", buffering=4096, closefd=False)  # whatever PYTHONUNBUFFERED says
atexit.register(print, "late")
print("said")
leave(3)
"""


def test_output_is_written_and_nothing_runs_after():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "said\n")


def test_a_full_disk_is_told_by_the_status():
    try:
        full = open("/dev/full", "w")  # noqa: SIM115
    except OSError:
        pytest.skip("no /dev/full")
    with full:
        assert subprocess.run([sys.executable, "-c", CODE], stdout=full).returncode == DISK_EXIT


def test_an_error_of_a_plugin_has_its_kind_and_place(tmp_path, monkeypatch):
    (tmp_path / "broken_plugin.py").write_text("def work():\n    return {}['speed']\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    import_plugins(["broken_plugin"])
    found = attempt(sys.modules["broken_plugin"].work, lambda error: "crash")
    assert found == {
        "status": "failed", "failure": "crash", "message": "KeyError: 'speed' (broken_plugin.py, line 2)",
    }  # fmt: skip
