# SPDX-License-Identifier: MIT
"""Triton's interpreter, in a process of its own: what imports Triton before the variable is set is not interpreted."""

import os
from pathlib import Path

import pytest

import forked_program


def check_interpreted(words: str, file: str) -> None:
    """Run `words`, which may import the tests beside `file`; fail with what they print if they do."""
    pytest.importorskip("triton")
    first = "import sys; assert 'triton' not in sys.modules; sys.path[:0] = sys.argv[1].split(':')\n"
    folders = os.pathsep.join(map(str, (Path(file).parent, Path(__file__).parent)))
    found = forked_program.run(first + words, folders, env={"TRITON_INTERPRET": "1"})
    assert found.returncode == 0, found.stderr[-3000:]
