# SPDX-License-Identifier: MIT
"""`dnnsuite profile` as a person types it."""

import json
import sys

import pytest

from command_line import status


@pytest.fixture
def profile(tmp_path, monkeypatch, capfd):
    """Run the command in a folder of its own; returns what it says to stdout, and to stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, expect=0):
        assert status("profile", *arguments) == expect, capfd.readouterr().err
        return capfd.readouterr()

    return run


def test_a_job_over_batch_sizes(profile, tmp_path):
    asked = ["toy_reg", "--start-iteration", "2", "--profile-iterations", "2", "--out", "out"]
    result = profile(*asked, "--batch-sizes", "2", "--json")
    found = json.loads(result.out)
    assert found["rows"][0]["status"] == "ok"
    assert "batch size 2 (1 of 1): starts" in result.err
    result = profile(*asked, "--batch-sizes", "2,4")
    assert "batch size 2 (1 of 2): starts" not in result.err  # it goes on where it was
    assert "batch size 4 (2 of 2): starts" in result.err
    assert "because" in result.out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        ".lock",
        "profiles.json",
        "batches.csv",
        "batches.png",
        "batch_2",
        "batch_4",
        "batch_2.csv",
        "batch_4.csv",
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no-such-job"], "no job 'no-such-job'; available"),
        (["toy_reg", "--batch-sizes", "1,x"], "write whole numbers with commas"),
        (["toy_reg", "--batch-sizes", "0"], "one item or more"),
        (["toy_reg", "--resume"], "nothing to continue"),
    ],
)
def test_what_cannot_be_is_one_line_and_status_2(profile, arguments, words):
    result = profile(*arguments, expect=2)
    assert words in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_a_command_after_two_dashes(profile):
    result = profile("--json", "--out", "mine", "--", sys.executable, "-c", "print(1)")
    assert json.loads(result.out)["profiles"] == []
    assert "no torch.optim optimizer" in result.err
