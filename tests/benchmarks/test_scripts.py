# SPDX-License-Identifier: MIT
"""Every script of benchmarks/ finds its modules, and those that are commands run from their old place."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = [path for path in sorted(BENCHMARKS.glob("*/*.py")) if '__name__ == "__main__"' in path.read_text()]
# Each with the path and the modules of a process of its own, without the start of one.
LOADER = """
import runpy, sys
from pathlib import Path
path, scripts = list(sys.path), sys.argv[1:]
folder = str(Path(scripts[0]).parents[1])
for script in scripts:
    sys.path[:] = [str(Path(script).parent), *path]
    runpy.run_path(script, run_name="imported")
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(folder):
            del sys.modules[name]
    print(script)
"""


def test_every_script_finds_its_modules(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LOADER, *SCRIPTS], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.stdout.split() == list(map(str, SCRIPTS)), done.stderr


@pytest.mark.parametrize("name", ["adapters.py", "fused.py", "on_gpu.py", "sweep.py"])
def test_a_command_runs_from_its_old_place(name, tmp_path):
    told = subprocess.run(
        [sys.executable, BENCHMARKS / name, "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert told.stdout.startswith(f"usage: {name} ")
