# SPDX-License-Identifier: MIT
"""The examples of sweeps run as they are."""

import importlib.util
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NEEDS = {
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


def test_the_digits_sweep_is_short():
    text = (ROOT / "examples/sweep_digits.py").read_text()
    lines = [line for line in text.split("import dnnsuite\n")[1].splitlines() if line.strip()]
    assert len(lines) <= 15
