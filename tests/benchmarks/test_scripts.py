# SPDX-License-Identifier: MIT
"""Every script of benchmarks/ finds its modules, and those that are commands run from their old place."""

import subprocess
import sys
from pathlib import Path

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
# Asks each for its help, as Python itself would start it.
HELPER = """
import runpy, sys
path, scripts = list(sys.path), sys.argv[1:]
for script in scripts:
    sys.path[:] = [script.rpartition("/")[0], *path[1:]]
    sys.argv = [script, "--help"]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        assert not end.code, script
"""


def test_every_script_finds_its_modules(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LOADER, *SCRIPTS], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.stdout.split() == list(map(str, SCRIPTS)), done.stderr


def test_a_command_runs_from_its_old_place(tmp_path):
    names = ["adapters.py", "fused.py", "on_gpu.py", "sweep.py"]
    done = subprocess.run(
        [sys.executable, "-c", HELPER, *(BENCHMARKS / name for name in names)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    told = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("usage: ")]
    assert told == names, done.stderr
