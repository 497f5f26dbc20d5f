# SPDX-License-Identifier: MIT
"""Where the operator library is found, and what happens where it is not."""

import os
import subprocess
import sys

import pytest

from dnnsuite.errors import Unavailable
from dnnsuite.ops._library import library_folder


def test_folder_has_the_library():
    assert (library_folder() / "libdnnsuite_ops.so").is_file()


def test_missing_library_says_where_and_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("DNNSUITE_LIBRARY_DIR", str(tmp_path))
    with pytest.raises(Unavailable) as caught:
        library_folder()
    assert str(tmp_path) in str(caught.value)
    assert "pip install" in str(caught.value)


def test_broken_library_is_unavailable(tmp_path):
    (tmp_path / "libdnnsuite_ops.so").write_bytes(b"not an object")
    program = (
        "import dnnsuite.errors as e\ntry:\n    import dnnsuite.ops\nexcept e.Unavailable as x:\n    print(x)"
    )
    environment = os.environ | {"DNNSUITE_LIBRARY_DIR": str(tmp_path)}
    out = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert "does not load under torch" in out.stdout


def test_no_python_inside():
    """The library needs LibTorch and no Python, so that one build serves every Python."""
    tool = subprocess.run(
        ["nm", "-D", "--undefined-only", str(library_folder() / "libdnnsuite_ops.so")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert not [line for line in tool.stdout.splitlines() if " Py" in line or " _Py" in line]
