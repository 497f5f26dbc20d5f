# SPDX-License-Identifier: MIT
"""The examples of sweeps run as they are."""

import importlib.util
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NEEDS = {
    "adapters_digits": "sklearn",
    "sweep_digits": "sklearn",
    "sweep_optuna": "optuna",
    "sweep_bert": "transformers",
    "sweep_lightning": "lightning",
}


@pytest.mark.parametrize("name", list(NEEDS))
def test_an_example_runs(tmp_path, monkeypatch, capsys, name):
    if importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    assert "is the best" in capsys.readouterr().out


def test_the_script_for_slurm(tmp_path):
    """Where srun starts one task."""
    for package in ("sklearn", "optuna"):
        pytest.importorskip(package)
    (tmp_path / "srun").write_text('#!/bin/sh\nexec "$@"\n')
    (tmp_path / "srun").chmod(0o755)
    places = [str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]]
    script = ["bash", "examples/sweep_slurm.sh"]
    environment = {**os.environ, "PATH": os.pathsep.join(places), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [*script, str(tmp_path / "out")], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert "of 17 is the best: acc" in done.stdout
    assert (tmp_path / "out" / "journal.log").is_file()
    refused = subprocess.run(script, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert refused.returncode
    assert "give the directory" in refused.stderr


def test_the_digits_sweep_is_short():
    text = (ROOT / "examples/sweep_digits.py").read_text()
    lines = [line for line in text.split("import dnnsuite\n")[1].splitlines() if line.strip()]
    assert len(lines) <= 15
