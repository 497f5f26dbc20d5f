# SPDX-License-Identifier: MIT
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import status

TOYS = str(Path(__file__).parent.parent / "workflow")


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(TOYS)
    monkeypatch.setenv("PYTHONPATH", TOYS)
    monkeypatch.chdir(tmp_path)


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("list", "--plugin", "toy_jobs", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert {"bert", "toy"} <= set(listed["jobs"])
    assert list(listed["modes"]) == ["serial", "concurrent", "mps", "mig", "hfta"]


def test_columns_are_aligned_and_nothing_slow_is_imported() -> None:
    code = (
        "import sys; from dnnsuite.cli.app import main\ntry: main(['list'])\nexcept SystemExit: pass\n"
        "print('torch' in sys.modules)"
    )
    environment = {**os.environ, "COLUMNS": "90"}
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    ).stdout.splitlines()
    assert said[-1] == "False"
    lines = [line for line in said if line.startswith("  ")]
    column = next(line for line in lines if "toy_reg" in line).index("Linear(4, 1)")
    assert all(line[column - 1] == " " and line[column] != " " for line in lines)
    assert max(map(len, lines)) <= 90
