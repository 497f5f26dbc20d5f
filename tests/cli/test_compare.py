# SPDX-License-Identifier: MIT
"""`dnnsuite compare`, by command."""

import json

import pytest

from dnnsuite.cli.app import main
from report_runs import record, suite  # noqa: F401  (a fixture)


def status(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(each) for each in arguments])
    return ended.value.code


@pytest.fixture
def made(suite):  # noqa: F811
    """Writes an output with three runs at about so many items a second."""

    def write(directory, rate, **more):
        runs = [record(repeat=i, rate=rate * factor, **more) for i, factor in enumerate((1.0, 1.001, 0.999))]
        return suite(*runs, directory=directory)

    return write


def test_same_and_slower_and_status(made, capsys, tmp_path):
    a, b, c = made("a", 100.0), made("b", 100.0), made("c", 80.0)
    assert status("compare", a, b, "--fail-on", "slower:5%") in (0, None)
    assert "= same" in capsys.readouterr().out
    files = [tmp_path / f"found.{suffix}" for suffix in ("md", "csv", "json", "png", "txt")]
    outs = [word for file in files for word in ("--out", file)]
    assert status("compare", a, c, "--fail-on", "slower:5%", "--markdown", *outs) == 1
    said = capsys.readouterr().out
    assert "| vae |" in said
    assert "fails on slower by 5 % or more: vae" in said
    assert all(file.stat().st_size > 100 for file in files)
    assert json.loads(files[2].read_text())["comparisons"][0]["failing"] == ["vae"]
    assert status("compare", a, c, "--fail-on", "slower:25%", "--json") in (0, None)
    found = json.loads(capsys.readouterr().out)
    assert found["comparisons"][0]["points"][0]["change_pct"] == pytest.approx(-20, abs=0.5)


def test_runs_that_are_on_both_sides_are_told(made, capsys):
    a, b = made("a", 100.0), made("b", 100.0)
    assert status("compare", a, a) in (0, None)
    assert f"3 runs of {a} are the baseline's own" in capsys.readouterr().err
    assert status("compare", a, b) in (0, None)
    assert "the baseline's own" not in capsys.readouterr().err


def test_several_candidates(made, capsys):
    assert status("compare", made("a", 100.0), made("b", 100.0), made("c", 80.0)) in (0, None)
    said = capsys.readouterr().out
    assert [line.split("/")[-1] for line in said.splitlines() if line.startswith("candidate")] == ["b", "c"]


def test_unlike_runs_are_refused_with_the_reason(made, capsys):
    a, b = made("a", 100.0), made("b", 100.0, cpu="Xeon")
    assert status("compare", a, b) == 2
    said = capsys.readouterr().err
    assert "processor is EPYC, 2 CPUs in the baseline and Xeon, 2 CPUs in the candidate" in said
    assert "--across machine" in said
    assert status("compare", a, b, "--across", "machine") in (0, None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--fail-on", "slwer:5%"], "did you mean 'slower'?"),
        (["--out", "x.jpg"], "the name must end in one of .md"),
        (["--metric", "loss"], "has 'loss'"),
    ],
)
def test_usage_errors(made, capsys, arguments, words):
    assert status("compare", made("a", 1.0), made("b", 1.0), *arguments) == 2
    assert words in capsys.readouterr().err
    assert status("compare", made("c", 1.0)) == 2
