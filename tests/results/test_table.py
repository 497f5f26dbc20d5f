# SPDX-License-Identifier: MIT
import math
import tempfile
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dnnsuite import results
from dnnsuite._files import write_json
from dnnsuite._runs.reading import read_run
from dnnsuite._runs.record import Metric
from dnnsuite.errors import Error
from dnnsuite.results.table import Row, frame_of, read_csv, save_csv
from result_tables import FIXTURES, a_record


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


@given(st.floats(), st.sampled_from(["throughput", "loss/valid", "throughput/with loader"]))
@example(0.0, "throughput")
@example(-5.0, "throughput")
@example(math.inf, "throughput")
@example(1e300, "throughput")
def test_a_value_is_kept_or_refused_alike_in_a_record_and_in_a_table(value, metric):
    """What a run cannot have had is refused by both readers; what it can have is kept to the last bit by both."""
    with tempfile.TemporaryDirectory() as folder:
        path, run = Path(folder, "t.csv"), Path(folder, "run.json")
        save_csv(frame_of([Row(job="vae", metric=metric, value=value, run="r")]), path)
        made = replace(a_record("vae"), metrics=(Metric(metric, value, "x/s"),))
        write_json(run, made.to_dict())
        found = [_kept(lambda: read_csv(path)["value"][0]), _kept(lambda: read_run(run).metrics[0].value)]
    assert found[0] == found[1]
    assert found[0] in ("refused", repr(value))


def _kept(read):
    try:
        return repr(float(read()))
    except Error:
        return "refused"


def _lines(**changes):
    rows = [Row(job="vae", run=f"r{i}", run_id=f"{i}", value=100.5 + i, **changes) for i in range(2)]
    with tempfile.TemporaryDirectory() as folder:
        save_csv(frame_of(rows), Path(folder, "t.csv"))
        return Path(folder, "t.csv").read_text().splitlines(keepends=True)


@pytest.mark.parametrize("left", [-1, -2, -40, -150, -330])
def test_a_table_that_was_cut_is_no_shorter_table(tmp_path, left):
    path = tmp_path / "t.csv"
    path.write_text("".join(_lines())[:left])
    with pytest.raises(Error, match=r"t\.csv: it ends in the middle of a line"):
        read_csv(path)


def test_a_row_counts_once_and_two_values_of_it_are_refused(tmp_path):
    lines, path = _lines(), tmp_path / "t.csv"
    path.write_text("\ufeff" + "".join([*lines, *lines[1:]]))  # the mark that some editors put first
    assert list(read_csv(path)["value"]) == [100.5, 101.5]
    path.write_text("".join([*lines, lines[1].replace("100.5", "999.5")]))
    with pytest.raises(Error, match="line 4: two values of throughput of run r0"):
        read_csv(path)


@pytest.mark.parametrize(
    "change",
    [
        {"B": 2.5}, {"copies": -1}, {"status": "OK"}, {"status": ""}, {"seconds": -1.0}, {"skipped_steps": 2.0},
        {"weight": -1.0}, {"weight": math.inf}, {"threads": -3}, {"low": 500.0, "high": 1.0},
    ],
)  # fmt: skip
def test_a_value_that_no_run_can_have_is_named_with_its_line(tmp_path, change):
    path = tmp_path / "t.csv"
    path.write_text("".join(_lines()))
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    for name, value in change.items():
        table.loc[1, name] = str(value)
    table.to_csv(path, index=False)
    with pytest.raises(Error, match=f"line 3: .*{value}"):
        read_csv(path)
