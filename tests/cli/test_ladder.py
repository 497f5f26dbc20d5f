# SPDX-License-Identifier: MIT
import json
from pathlib import Path

import pytest

from command_line import status

TINY = ("width=1", "batch_size=2", "data=synthetic", "--rounds", "8", "--steps", "1", "--device", "cpu")


def test_rungs_as_json_and_as_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    assert status("ladder", *TINY, "--rungs", "fp32,+nhwc", "--out", str(out), "--json") == 0
    captured = capsys.readouterr()
    assert [rung["name"] for rung in json.loads(captured.out)] == ["fp32", "+nhwc"]
    assert "round 8 of 8" in captured.err
    assert [path.name for path in out.iterdir()] == ["ladder.csv"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rungs", "fp32,+fast"], "unknown rung '+fast'"),
        (["--config", "bs25"], "did you mean 'bs256'?"),
        (["heavy=1"], "unknown key 'heavy'"),
    ],
)
def test_usage_errors(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("ladder", *TINY, *arguments) == 2
    assert words in capsys.readouterr().err
