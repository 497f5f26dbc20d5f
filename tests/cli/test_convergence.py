# SPDX-License-Identifier: MIT
"""`dnnsuite workflow convergence`."""

import json

import pytest
from typer.testing import CliRunner

from dnnsuite.cli.app import app

TINY = ["--job", "blobs", "--plugin", "tiny_workloads", "--epochs", "1", "--iters-per-epoch", "3", "--device", "cpu"]


def dnnsuite(*arguments):
    return CliRunner().invoke(app, ["workflow", "convergence", *arguments])


def test_what_it_would_do():
    found = dnnsuite(*TINY, "--lrs", ".1,.2", "--dry-run")
    assert found.exit_code == 0
    assert "3 trainings of 3 iterations of 2 models" in found.output
    told = json.loads(dnnsuite(*TINY, "--dry-run", "--json").output)
    assert told["settings"]["lrs"] == [0.1, 0.05, 0.025]
    wide = json.loads(dnnsuite(*TINY, "--option", "width=7", "--dry-run", "--json").output)
    assert wide["settings"]["options"] == {"width": 7}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-B", "3"], "--max-B has no meaning"),
        (["--option", "depth=3"], "no option 'depth'"),
        (["--precisions", "fp32,fp64"], "in one precision"),
        (["--lrs", "x"], "expected numbers"),
        (["--hfta-tree", "tree"], "--hfta-tree has no meaning"),
        (["--unfused", "bn1"], "--unfused has no meaning"),
    ],
)
def test_refused_with_nothing_left_behind(arguments, message, tmp_path):
    found = dnnsuite(*TINY, *arguments, "--out", str(tmp_path / "out"))
    assert found.exit_code == 2
    assert message in found.stderr
    assert not (tmp_path / "out").exists()


def test_its_options_are_no_other_workflows(tmp_path):
    found = CliRunner().invoke(app, ["workflow", "bert", "--lrs", ".1", "--out", str(tmp_path / "out")])
    assert found.exit_code == 2
    assert "--lrs is an option of `dnnsuite workflow convergence`" in found.stderr
