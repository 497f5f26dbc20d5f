# SPDX-License-Identifier: MIT
import json
import subprocess
import sys

import pytest

from dnnsuite.cli.app import main
from dnnsuite.cli.report import mlbench_report
from report_runs import mila_tree, record, suite  # noqa: F401  (fixtures)
from result_tables import FIXTURES


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        main(["report", *map(str, arguments)])
    return caught.value.code, *capsys.readouterr()


def test_the_seeds_command(mila_tree, capsys):  # noqa: F811
    status, out, _ = run(capsys, mila_tree, "--name", "baselines", "--gpu-model", "RTX", "--style", "seed")
    assert status == 0
    assert "Deviation Quantile (80%) : +1.1458 % | True |" in out


def test_every_kind_of_file(mila_tree, tmp_path, capsys):  # noqa: F811
    files = [tmp_path / f"report.{kind}" for kind in ("txt", "md", "csv", "json", "html")]
    options = [word for path in files for word in ("--out", path)]
    assert run(capsys, mila_tree, *options)[0] == 0
    assert all(path.stat().st_size > 500 for path in files)
    assert len(json.loads(files[3].read_text())["summary"]) == 19
    assert files[2].read_text().startswith("job,runs,copies,unit,rate_per_s")


def test_a_failed_machine_has_status_one_and_json_says_why(suite, capsys):  # noqa: F811
    status, out, _ = run(capsys, suite(record(failure="oom")), "--json")
    assert status == 1
    assert list(json.loads(out)["failures"]) == ["oom"]


def test_damaged_records_are_named_on_standard_error_and_the_status_stays(suite, capsys):  # noqa: F811
    out = suite(*(record(repeat=run, rate=100 + run) for run in range(5)))
    damaged = out / "runs" / "vae-r4-d0" / "run.json"
    damaged.write_text("{")
    status, said, err = run(capsys, out, "--jobs", 1, "--json")
    assert status == 0
    assert f"dnnsuite: skipped: {damaged}" in err
    assert len(json.loads(said)["problems"]) == 1


def test_a_report_on_a_workflow_says_what_it_cannot_have(capsys):
    status, said, _ = run(capsys, FIXTURES / "workflow")
    assert status == 0
    assert "toy hfta fp32 B=2" in said
    assert "targets, the original's table and a score exist only for suites" in said


def test_this_machine_becomes_the_target(mila_tree, tmp_path, capsys):  # noqa: F811
    target = tmp_path / "mine.csv"
    assert run(capsys, mila_tree, "--save-target", target)[0] == 0
    status, out, _ = run(capsys, mila_tree, "--gpu-model", target, "--style", "seed")
    assert status == 0 or "Performance              : -0.0000" in out
    assert "Performance              : " in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--style", "long"], "unknown style 'long'; accepted: full, seed, score"),
        (["--out", "report.docx"], "must end in one of .pdf, .txt, .md, .csv, .json, .html"),
        (["--gpu-model", "A100"], "neither one of V100, MI50, RTX"),
    ],
)
def test_bad_arguments_are_named(mila_tree, capsys, arguments, message):  # noqa: F811
    status, _, err = run(capsys, mila_tree, *arguments)
    assert status == 2
    assert message in err


def test_the_originals_tool(mila_tree, tmp_path, monkeypatch, capsys):  # noqa: F811
    code = "from dnnsuite.cli.report import mlbench_report; mlbench_report()"
    words = ["--reports", str(mila_tree), "--name", "baselines", "--gpu-model", "RTX", "--show-comparison"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "loader                          1200.00" in done.stdout
    assert "Bench Passes             :           | True |" in done.stdout
    page = tmp_path / "page.html"
    asked = ["--reports", mila_tree, "--jobs", "baselines", "--gpu-model", "RTX", "--html", page, "--price", "10"]
    for words, expected in ((asked, 0), (["--reports", tmp_path / "gone"], 2)):
        monkeypatch.setattr(sys, "argv", ["mlbench-report", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            mlbench_report()
        assert (ended.value.code or 0) == expected
    assert "RPP (Price/Score)" in capsys.readouterr().out
    assert page.read_text().startswith("<!DOCTYPE html>")
