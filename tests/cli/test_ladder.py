# SPDX-License-Identifier: MIT
import json
import os
import signal
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
    assert {path.name for path in out.iterdir()} == {".lock", "ladder.csv", "ladder.json"}


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


def test_an_interrupted_ladder_keeps_its_rounds_and_is_continued(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dnnsuite.cli import ladder

    said = ladder.say

    def interrupting(line: str) -> None:
        said(line)
        if line == "round 5 of 8":
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ladder, "say", interrupting)
    line = ("ladder", *TINY, "--rungs", "fp32,+nhwc", "--out", str(tmp_path / "out"))
    assert status(*line) == 130
    assert f"--resume --out {tmp_path / 'out'}" in capsys.readouterr().err
    assert status(*line) == 2  # what is there is not overwritten
    assert "continue it with --resume" in capsys.readouterr().err
    assert status(*line, "--resume", "--steps", "2") == 2
    assert "steps" in capsys.readouterr().err
    monkeypatch.setattr(ladder, "say", said)
    assert status(*line, "--resume") == 0
    rounds = [line for line in capsys.readouterr().err.splitlines() if "round" in line]
    assert [rounds[0], rounds[-1]] == ["dnnsuite: round 5 of 8", "dnnsuite: round 8 of 8"]
    assert (tmp_path / "out" / "ladder.csv").is_file()
    assert status(*line, "--resume") == 0  # nothing is missing
    assert "round" not in capsys.readouterr().err
