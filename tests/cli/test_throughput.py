# SPDX-License-Identifier: MIT
"""`dnnsuite throughput`: rows, files, one sentence for what cannot be."""

import json
import runpy
from pathlib import Path

import pytest

from command_line import status
from dnnsuite._shown import number


def test_a_measurement_its_files_its_figure_and_an_example_that_reads_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    order = ["throughput", "toy_reg", "--batch-sizes", "2,4", "--stop-iteration", "6", "--threads", "1"]
    assert status(*order, "--out", str(out), "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert [row["batch_size"] for row in said["rows"]] == [2, 4]
    assert all((out / name).exists() for name in ("throughput.png", "throughput_data/batch_2.log"))
    assert status(*order, "--out", str(out), "--resume", "--quiet") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:3] == ["2", number(said["rows"][0]["rate"]), "samples/s"]
    assert status("plot", str(out), "--save", str(tmp_path / "mine")) == 0
    assert (tmp_path / "mine.png").is_file()
    capsys.readouterr()
    example = Path(__file__).parents[2] / "examples/throughput_csv.py"
    monkeypatch.setattr("sys.argv", [example.name, str(out)])
    runpy.run_path(str(example), run_name="__main__")
    said = capsys.readouterr().out
    assert " 2 runs on cpu" in said
    assert ", the fastest" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["toy_regg"], "no job 'toy_regg'"),
        (["toy_reg", "--batch-sizes", "1,x"], "write whole numbers with commas"),
        (["toy_reg", "--batch-sizes", "0"], "a batch has one item or more"),
        (["toy_reg", "--option", "x=1"], "job toy_reg has no option 'x'"),
        (["toy_reg", "--utilization", "--device", "cpu"], "counters of an NVIDIA GPU's cores"),
        (["toy_reg", "--resume", "--out", "gone"], "holds no throughput.json"),
    ],
)
def test_usage_errors(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("throughput", *arguments) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""
