# SPDX-License-Identifier: MIT
"""Triton's interpreter, in a process of its own: what imports Triton before the variable is set is not interpreted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def check_interpreted(words: str, file: str) -> None:
    """Run `words`, which may import the tests beside `file`; fail with what they print if they do."""
    pytest.importorskip("triton")
    folders = map(str, (Path(file).parent, Path(__file__).parent))
    path = os.pathsep.join([*folders, *filter(None, [os.environ.get("PYTHONPATH")])])
    found = subprocess.run(
        [sys.executable, "-c", words],
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-3000:]
