# SPDX-License-Identifier: MIT
from pathlib import Path

import pandas as pd
import pytest

from dnnsuite import results
from dnnsuite.errors import Error
from dnnsuite.results.table import Row, frame_of, read_csv, save_csv
from result_tables import FIXTURES


def test_a_table_survives_its_file(tmp_path: Path) -> None:
    rows = [
        Row(job="NA", share="0", data="None", job_version="0123", replica=3, low=1.0, run_id="a", B=2),
        Row(job="x", status="failed", failure="oom", message='a "b", c', run_id="b"),
    ]
    table = frame_of(rows)
    save_csv(table, tmp_path / "x.csv")
    pd.testing.assert_frame_equal(read_csv(tmp_path / "x.csv"), table)
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


def test_columns_that_an_earlier_version_lacks_are_unknown() -> None:
    table = read_csv(FIXTURES / "workflow" / "results.csv")
    assert tuple(table.columns) == results.COLUMNS
    assert set(table["hostname"]) == {""}
    assert table["run_id"].nunique() == table["run"].nunique()


def test_completing_twice_changes_nothing() -> None:
    once = results.complete(pd.read_csv(FIXTURES / "workflow" / "results.csv"))
    pd.testing.assert_frame_equal(results.complete(once), once)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "No columns"),
        ("job,device\nvae,cpu\n", "no column 'mode'"),
        (",".join(results.COLUMNS[:15]) + "\n" + ",".join(["x"] * 15) + "\n", "not a table of results"),
    ],
)
def test_a_file_that_is_no_such_table_is_named(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(Error, match=said) as caught:
        read_csv(path)
    assert str(path) in str(caught.value)
