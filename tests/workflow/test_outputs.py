# SPDX-License-Identifier: MIT
import io
import json
from pathlib import Path

import matplotlib.image
import pandas as pd
import pytest
from rich.console import Console

from dnnsuite.errors import Error
from dnnsuite.workflow import WorkflowReport, outputs


def test_files_read_back(finished: WorkflowReport) -> None:
    csv, png, tidy = finished.files
    assert (csv.name, png.name, tidy.name) == ("cpu-toy.csv", "cpu-toy.png", "results.csv")
    wide = pd.read_csv(csv, index_col="B")
    assert wide.index.tolist() == [1, 2]
    assert list(wide.columns[:5]) == [f"serial:fp32:{name}" for name in ("0", "1", "avg", "min", "max")]
    assert wide.loc[2, "hfta:fp32:avg"] > wide.loc[1, "serial:fp32:avg"]  # two models nap at once
    assert wide.loc[1].notna().sum() == 5  # concurrent and hfta were measured at B=2 only
    assert set(pd.read_csv(tidy)["metric"]) == {"throughput", "throughput/CPU second", "speedup", "time/step"}
    assert matplotlib.image.imread(png).shape[0] > 500


def test_rows_say_what_was_not_measured(finished: WorkflowReport) -> None:
    rows = outputs.rows(finished.summary, finished.state)
    assert [(row["mode"], row.get("B")) for row in rows] == [
        ("serial", 1),
        ("concurrent", 2),
        ("hfta", 2),
        ("mps", None),
    ]
    judged = [row["status"].split(":")[0] for row in rows]
    assert judged[0] == "ok"
    assert set(judged[1:3]) <= {"ok", "rough", "inconclusive"}  # a few naps, on whatever machine this is
    assert judged[3] == "unavailable"
    assert rows[0]["normalized"] == 1.0
    json.dumps(rows, allow_nan=False)


def test_rows_of_what_failed() -> None:
    state = {
        "search": {"hfta/fp32": {"max_B": None, "message": "cannot fit a single model"}},
        "equality": {"amp": {"passed": False}},
    }
    assert [row["status"] for row in outputs.rows(None, state)] == [
        "failed: cannot fit a single model",
        "withheld: equality check failed",
    ]


@pytest.mark.parametrize("terminal", [False, True])
def test_table(terminal: bool, finished: WorkflowReport) -> None:
    out = io.StringIO()
    console = Console(file=out, width=160, force_terminal=terminal)
    outputs.print_table(console, outputs.rows(finished.summary, finished.state))
    text = out.getvalue()
    for word in ("normalized (95 %)", "serial", "hfta", "naps/s", "unavailable: MPS needs an NVIDIA GPU"):
        assert word in text


def test_names_of_files(finished: WorkflowReport) -> None:
    assert outputs.file_stem(finished.settings) == "cpu-toy"


def test_nothing_finished_and_damaged(finished: WorkflowReport, tmp_path: Path) -> None:
    assert outputs.write_outputs(tmp_path, finished.settings) == (None, None, [])
    (tmp_path / "runs" / "x-B1-fp32-r0").mkdir(parents=True)
    with pytest.raises(Error, match=r"run\.json"):
        outputs.write_outputs(tmp_path, finished.settings)


def test_a_reader_is_told_of_a_disturbed_machine(finished: WorkflowReport) -> None:
    assert finished.table is not None
    table = finished.table.copy()
    assert outputs.remarks(table) == []
    busy = "other processes used 0.9 of 2 cores, in 12 of 40 rounds"
    table["disturbances"] = busy
    assert outputs.remarks(table) == [f"the machine was not quiet: {busy}"]
    table["disturbances"] = "rated before its steps had settled"  # in the status of its row, and none of the machine's
    assert outputs.remarks(table) == []
    serial = table["mode"] == "serial"
    assert "not normalised" in outputs.remarks(table[~serial])[0]
    assert outputs.remarks(None) == []


def test_what_is_not_known_is_no_number_and_not_ok(finished: WorkflowReport) -> None:
    assert finished.summary is not None
    row = {**finished.summary.iloc[-1].to_dict(), "runs": 1, "failed": 0}
    rows = [
        {**row, "state": "inconclusive: the machine was busy: others"},
        {**row, "state": "on 1 of 2 cores, others used 1.0"},
        {**row, "state": "rough: its interval is ±9 % wide"},
    ]
    unknown, beside, rough = outputs.rows(pd.DataFrame(rows), {})
    assert (unknown["rate"], unknown["normalized"], unknown["low"]) == (None, None, None)
    assert unknown["status"] == "inconclusive: the machine was busy: others"
    assert (beside["status"], beside["rate"]) == ("ok, on 1 of 2 cores, others used 1.0", row["rate"])
    assert (rough["status"], rough["rate"]) == ("rough: its interval is ±9 % wide", row["rate"])
