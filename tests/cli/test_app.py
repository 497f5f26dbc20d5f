# SPDX-License-Identifier: MIT
import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["dnnsuite", "dnnsuite.workflow"])
def test_help_imports_nothing_slow(module: str) -> None:
    code = (
        "import runpy, sys\n"
        f"sys.argv = ['x', '--help']\ntry: runpy.run_module({module!r}, run_name='__main__')\nexcept SystemExit: pass\n"
        "print(sorted({'torch', 'pandas', 'matplotlib'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[0].startswith("Usage: ")
    assert said.splitlines()[-1] == "[]"


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m dnnsuite list | true"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
