# SPDX-License-Identifier: MIT
import json
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
