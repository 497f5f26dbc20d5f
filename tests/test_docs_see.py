# SPDX-License-Identifier: MIT
"""The page on profiling does what it says: its script is profiled."""

import json
import os
import re
import subprocess
import sys

import pytest

import pages

PAGE = pages.DOCS / "see/profile.md"


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """The folder in which the page's commands were run, and what they said."""
    folder = tmp_path_factory.mktemp("see")
    (script,) = pages.blocks(PAGE, "python")
    (folder / "regression.py").write_text(script)
    said = ""
    for command in pages.blocks(PAGE, "sh"):
        line = [sys.executable if word == "python" else word for word in command.split()]
        line[:1] = [sys.executable, "-m", "dnnsuite"] if line[0] == "dnnsuite" else line[:1]
        done = subprocess.run(
            line, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
        assert done.returncode == 0, done.stderr
        said += done.stdout
    return folder, said


def test_the_script_is_profiled_as_the_page_says(seen):
    folder, said = seen
    assert "after 200 steps" in said or "loss 0.000" in said
    assert "a step ends with backward" in said
    shares = json.loads((folder / "seen/profile.json").read_text())["breakdown"]
    assert {"host", "gemm"} <= {row["class"] for row in shares}
    for name in ("summary.txt", "trace.json.gz", "breakdown.csv", "ops_by_name.csv", "steps.csv", "breakdown.png"):
        assert (folder / "seen" / name).is_file()
    assert re.search(r"seen/trace.json.gz: kineto; .*ops, 12 steps", said)
