# SPDX-License-Identifier: MIT
import json
from pathlib import Path

import pytest

from command_line import status
from report_runs import record, suite  # noqa: F401  (a fixture)


def test_a_card(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("show", "convnet_fp16") == 0
    said = capsys.readouterr().out
    assert said.startswith("# convnet_fp16\n")
    assert "## Deviations from the original" in said
    assert "Mixed Precision Training, 2018" in said
    assert status("show", "dcgan", "--json") == 0
    assert [card["job"] for card in json.loads(capsys.readouterr().out)] == ["dcgan"]


def test_references_of_a_directory_of_runs(suite, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:  # noqa: F811
    out = suite(record("vae"), record("recom"), record("mine"))
    assert status("show", str(out), "--bibtex") == 0
    captured = capsys.readouterr()
    assert "{kingma2014," in captured.out
    assert "{he2017," in captured.out
    assert "{he2016," not in captured.out
    assert "mine has no card" in captured.err


@pytest.mark.parametrize("arguments", [[], ["vae", "--all"], ["vea"]])
def test_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert status("show", *arguments) == 2
    assert capsys.readouterr().err.startswith("dnnsuite: error: ")
