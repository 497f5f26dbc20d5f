# SPDX-License-Identifier: MIT
"""`dnnsuite profile` as a person types it."""

import json
import subprocess
import sys

import pytest


def dnnsuite(*arguments, folder, expect=0):
    result = subprocess.run(
        [sys.executable, "-m", "dnnsuite", "profile", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == expect, result.stderr
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("profile")


def test_a_job_over_batch_sizes(folder):
    asked = ["toy_reg", "--start-iteration", "2", "--profile-iterations", "2", "--out", "out"]
    result = dnnsuite(*asked, "--batch-sizes", "2", "--json", folder=folder)
    found = json.loads(result.stdout)
    assert found["rows"][0]["status"] == "ok"
    assert "batch size 2 (1 of 1): starts" in result.stderr
    result = dnnsuite(*asked, "--batch-sizes", "2,4", folder=folder)
    assert "batch size 2 (1 of 2): starts" not in result.stderr  # it goes on where it was
    assert "batch size 4 (2 of 2): starts" in result.stderr
    assert "because" in result.stdout
    assert {path.name for path in (folder / "out").iterdir()} == {
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
        (["no-such-job"], "no job 'no-such-job'; there is"),
        (["toy_reg", "--batch-sizes", "1,x"], "write whole numbers with commas"),
        (["toy_reg", "--batch-sizes", "0"], "one item or more"),
        (["toy_reg", "--resume"], "nothing to continue"),
    ],
)
def test_what_cannot_be_is_one_line_and_status_2(folder, arguments, words):
    result = dnnsuite(*arguments, folder=folder, expect=2)
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_command_after_two_dashes(folder):
    result = dnnsuite("--json", "--out", "mine", "--", sys.executable, "-c", "print(1)", folder=folder, expect=0)
    assert json.loads(result.stdout)["profiles"] == []
    assert "no torch.optim optimizer" in result.stderr
