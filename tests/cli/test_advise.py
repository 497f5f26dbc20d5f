# SPDX-License-Identifier: MIT
"""`dnnsuite advise`."""

import json

import pytest
from typer.testing import CliRunner

import played_turns
from dnnsuite.cli.app import app

TINY = ["advise", "blobs", "--plugin", "tiny_workloads", "--threads", "1", "--device", "cpu"]


@pytest.fixture(autouse=True)
def a_quiet_machine(monkeypatch):
    played_turns.play(monkeypatch)


def test_table_reason_and_cost():
    found = CliRunner().invoke(app, [*TINY, "--trials", "8", "--steps", "20"])
    assert found.exit_code == 0
    assert "Use hfta with B=" in found.output
    assert "A sweep of 8 trials of 20 steps: serial" in found.output


def test_prediction_against_measurement():
    found = CliRunner().invoke(app, [*TINY, "--verify", "6", "--json"])
    (row,) = json.loads(found.output)
    assert row["job"] == "blobs"
    assert row["low"] <= row["predicted"] <= row["high"]
    assert row["measured"] == pytest.approx(6 / played_turns.seconds(6), rel=1e-6)
    assert row["error_pct"] == 100 * (row["predicted"] / row["measured"] - 1)


def test_refused():
    for arguments, message in (
        (["--verify", "4"], "name a larger one"),
        (["--verify", "6", "--threads", "0"], "threads must be at least 1"),
        (["--trials", "0"], "trials"),
        (["--preset", "papper"], "did you mean 'paper'"),
        (["blob"], "no job 'blob'"),
    ):
        found = CliRunner().invoke(app, [*TINY, *arguments])
        assert found.exit_code == 2
        assert message in found.stderr
    assert "no job 'blob'" in CliRunner().invoke(app, ["advise", "blob"]).stderr
