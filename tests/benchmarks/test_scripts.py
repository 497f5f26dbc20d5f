# SPDX-License-Identifier: MIT
"""Every script of benchmarks/ finds its modules, and those that are commands run from their old place."""

from pathlib import Path

import pytest

import forked_program

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = [path for path in sorted(BENCHMARKS.glob("*/*.py")) if '__name__ == "__main__"' in path.read_text()]
COMMANDS = ["adapters.py", "fused.py", "on_gpu.py", "sweep.py"]
# Each with the path and the modules of a process of its own, without the start of one: commands are asked for their
# help, as Python itself would start them, and all are imported.
LOADER = """
import runpy, sys
from pathlib import Path
path, folder, names = list(sys.path[1:]), Path(sys.argv[1]), sys.argv[2:]
def forget():
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(folder)):
            del sys.modules[name]
for name in names:
    script = str(folder / name)
    sys.path[:] = [script.rpartition("/")[0], *path]
    if "/" in name:
        runpy.run_path(script, run_name="imported")
        print("imported:", name)
    else:
        sys.argv = [script, "--help"]
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as end:
            assert not end.code, script
    forget()
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    names = [*COMMANDS, *(str(path.relative_to(BENCHMARKS)) for path in SCRIPTS)]
    return forked_program.run(LOADER, str(BENCHMARKS), *names, cwd=tmp_path_factory.mktemp("elsewhere"))


def test_every_script_finds_its_modules(done):
    found = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("imported: ")]
    assert found == [str(path.relative_to(BENCHMARKS)) for path in SCRIPTS], done.stderr
    assert done.returncode == 0, done.stderr


def test_a_command_runs_from_its_old_place(done):
    told = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("usage: ")]
    assert told == COMMANDS, done.stderr
