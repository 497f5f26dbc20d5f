# SPDX-License-Identifier: MIT
import json
from pathlib import Path

from dnnsuite.suites._records import write_reports


def read_as_the_original_does(path: Path) -> list[dict]:
    """Its reader takes the last character away and closes the list itself."""
    return json.loads(path.read_text().strip()[:-1] + "]")


def test_a_tree_that_the_original_reads(tmp_path: Path) -> None:
    runs = [tmp_path / "runs" / name for name in ("a-r1-d0", "b-r1-d0", "c-r1-d0")]
    for run in runs[:2]:
        run.mkdir(parents=True)
        (run / "report.json").write_text(json.dumps([{"name": run.name[0], "train_item": {"avg": 1.0}}]))
    write_reports(tmp_path, "baselines", 1, 0, runs)
    path = tmp_path / "mila" / "1" / "baselines_0.json"
    assert [report["name"] for report in read_as_the_original_does(path)] == ["a", "b"]
    assert [report["name"] for report in read_as_the_original_does(runs[0] / "report.json")] == ["a"]
    write_reports(tmp_path, "baselines", 1, 0, runs[2:])
    assert not path.exists()
