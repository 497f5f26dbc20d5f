# SPDX-License-Identifier: MIT
from pathlib import Path

import pytest

from dnnsuite import results
from dnnsuite.results.hfta import rows_of_hfta
from result_tables import row


def write_hfta(path: Path, start_s: float, epochs: int, seconds: float, samples: int) -> None:
    path.mkdir(parents=True)
    rows = [f"{e},{e},{start_s + e * seconds},{start_s + (e + 1) * seconds},{samples}" for e in range(epochs)]
    (path / "timing.csv").write_text("\n".join([",epoch,epoch_start,epoch_stop,num_samples", *rows, ""]))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for run in (0, 1):
        root = tmp_path / "bert" / f"run{run}" / "cuda" / "v100"
        write_hfta(root / "fp32" / "serial", 1e9, 3, 2.0, 100)  # 50 samples a second
        write_hfta(root / "amp" / "hfta" / "B4", 1e9, 3, 2.0, 400)  # 200
        for i in range(2):  # 50 each; the second starts half an epoch later, and only the overlap counts
            write_hfta(root / "fp32" / "concurrent" / "B2" / f"idx{i}", 1e9 + i, 3, 2.0, 100)
    return tmp_path / "bert"


def test_hftas_own_tree(tree: Path) -> None:
    loaded = results.load(tree)
    assert set(loaded["job"]) == {"bert"}
    assert set(loaded["kind"]) == {"hfta"}
    assert sorted(set(loaded["repeat"])) == [0, 1]
    assert loaded["run_id"].nunique() == 6
    summary = results.summarize(loaded)
    assert row(summary, "serial", 1)["rate"] == pytest.approx(50)
    assert row(summary, "concurrent", 2)["rate"] == pytest.approx(100)
    assert row(summary, "hfta", 4, "amp")["normalized"] == pytest.approx(4)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("epoch\n0\n", "no column 'epoch_start'"),
        ("", "No columns"),
        ("epoch,epoch_start,epoch_stop,num_samples\n0,a,b,c\n", "could not convert"),
    ],
)
def test_a_damaged_run_is_named_and_left_out(text: str, said: str, tree: Path) -> None:
    path = tree / "run0" / "cuda" / "v100" / "fp32" / "serial" / "timing.csv"
    path.write_text(text)
    loaded = results.load(tree)
    assert len(loaded) == 5
    (problem,) = loaded.attrs["problems"]
    assert problem.startswith(f"skipped: {path}: ")
    assert said in problem


def test_a_processes_damage_takes_its_run_along(tree: Path) -> None:
    (tree / "run0" / "cuda" / "v100" / "fp32" / "concurrent" / "B2" / "idx1" / "timing.csv").write_text("epoch\n")
    rows, problems = rows_of_hfta(tree)
    assert sorted(found.repeat for found in rows if found.mode == "concurrent") == [1]
    assert len(problems) == 1
