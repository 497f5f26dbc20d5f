# SPDX-License-Identifier: MIT
from pathlib import Path

import pytest

from dnnsuite import results
from dnnsuite.errors import Error
from dnnsuite.results.monitor import SAMPLE_COLUMNS
from result_tables import FIXTURES


def test_steps_of_a_run(tmp_path: Path) -> None:
    for i in range(11):
        (tmp_path / f"idx{i}").mkdir()
        (tmp_path / f"idx{i}" / "samples.csv").write_text(f"i,epoch,t_start_ns,t_stop_ns,items\n0,0,{i},{i + 5},4\n")
    steps = results.steps(tmp_path)
    assert steps["replica"].tolist() == list(range(11))
    assert steps["t_start_ns"].tolist() == list(range(11))
    (tmp_path / "idx3" / "samples.csv").write_text("")
    with pytest.raises(Error, match=r"idx3.samples\.csv"):
        results.steps(tmp_path)
    with pytest.raises(Error, match=r"no samples\.csv"):
        results.steps(tmp_path / "idx99")


@pytest.mark.parametrize(
    ("header", "line", "wanted"),
    [
        ("i,epoch,t_start_ns,t_stop_ns,items", "0,2,5,9,4", [0, 0, 2, 5, 9, 4, "", ""]),
        ("i,t_start_ns,t_stop_ns,items,phase,flag", "0,5,9,4,train,", [0, 0, 0, 5, 9, 4, "train", ""]),
        (
            "i,epoch,t_start_ns,t_stop_ns,items,phase,flag",
            "0,2,5,9,4,warmup,contended",
            [0, 0, 2, 5, 9, 4, "warmup", "contended"],
        ),
    ],
    ids=["workflow of version 1", "suite of version 1", "today"],
)
def test_every_header_is_read(header: str, line: str, wanted: list[object], tmp_path: Path) -> None:
    (tmp_path / "samples.csv").write_text(f"{header}\n{line}\n")
    steps = results.steps(tmp_path)
    assert tuple(steps.columns) == SAMPLE_COLUMNS
    assert steps.iloc[0].tolist() == wanted


@pytest.mark.parametrize("text", ["", "i,items\n0,3\n"])
def test_a_damaged_file_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "samples.csv").write_text(text)
    with pytest.raises(Error, match=r"samples\.csv"):
        results.steps(tmp_path)


def test_samples_of_the_first_version_are_read() -> None:
    for path in FIXTURES.rglob("run.json"):
        if any(path.parent.rglob("samples.csv")):
            assert len(results.steps(path.parent)) >= 4
