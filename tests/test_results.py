# SPDX-License-Identifier: MIT
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite import results
from dnnsuite.errors import Error


def table(*rows: tuple[str, str, int, int, float], **more: Any) -> pd.DataFrame:
    """(mode, precision, B, repeat, rate) as results.load gives them; a NaN rate is a failed run."""
    records = []
    for mode, precision, B, repeat, value in rows:
        failed = math.isnan(value)
        record = {
            "job": "toy", "device": "cpu", "mode": mode, "precision": precision, "B": B, "repeat": repeat,
            "metric": "throughput", "value": value, "unit": "naps/s", "status": "failed" if failed else "ok",
            "failure": "oom" if failed else None, "run": f"{mode}{B}-{repeat}", **more,
        }  # fmt: skip
        records.append(record)
    frame = pd.DataFrame(records, columns=list(results.COLUMNS))
    return frame.astype({"value": "float64", "low": "float64", "high": "float64", "replica": "Int64"})


def row(summary: pd.DataFrame, mode: str, B: int, precision: str = "fp32") -> dict[str, Any]:
    found = summary[(summary["mode"] == mode) & (summary["B"] == B) & (summary["precision"] == precision)]
    assert len(found) == 1
    return dict(found.iloc[0])


def write_run(
    root: Path, mode: str = "serial", B: int = 1, repeat: int = 0, value: float | None = 100.0
) -> Path:
    path = root / "runs" / f"20261121-0000{repeat:02d}-toy-{mode}-B{B}-fp32-r{repeat}"
    path.mkdir(parents=True)
    metrics = [] if value is None else [
        {"name": "throughput", "value": value, "unit": "naps/s", "low": value - 1, "high": value + 1, "replica": None},
        {"name": "time/step", "value": 0.1, "unit": "s", "low": None, "high": None, "replica": 0},
    ]  # fmt: skip
    run = {
        "job": "toy", "device": "cpu", "mode": mode, "precision": "fp32", "B": B, "repeat": repeat, "unit": "naps",
        "status": "ok" if metrics else "failed", "failure": None if metrics else "oom", "metrics": metrics,
    }  # fmt: skip
    (path / "run.json").write_text(json.dumps(run))
    return path


def test_load_is_tidy(tmp_path: Path) -> None:
    write_run(tmp_path)
    write_run(tmp_path, "hfta", 4, repeat=1, value=None)
    (tmp_path / "runs" / ".tmp-20261121-000000-toy-hfta-B2-fp32-r0").mkdir()
    loaded = results.load(tmp_path)
    assert tuple(loaded.columns) == results.COLUMNS
    assert len(loaded) == 3
    assert loaded["replica"].isna().tolist() == [True, False, True]
    assert loaded["status"].tolist() == ["ok", "ok", "failed"]
    pd.testing.assert_frame_equal(loaded, results.load(tmp_path / "runs"))


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"job": "toy"}'])
def test_a_damaged_record_is_named(content: str | None, tmp_path: Path) -> None:
    record = write_run(tmp_path) / "run.json"
    record.unlink() if content is None else record.write_text(content)
    with pytest.raises(Error, match=r"run\.json"):
        results.load(tmp_path)


def test_nothing_to_load(tmp_path: Path) -> None:
    with pytest.raises(Error, match="no finished runs"):
        results.load(tmp_path)
    with pytest.raises(Error, match="no such directory"):
        results.load(tmp_path / "absent")


def test_steps_of_a_run(tmp_path: Path) -> None:
    for i in range(11):
        (tmp_path / f"idx{i}").mkdir()
        (tmp_path / f"idx{i}" / "samples.csv").write_text(
            f"i,epoch,t_start_ns,t_stop_ns,items\n0,0,{i},{i + 5},4\n"
        )
    steps = results.steps(tmp_path)
    assert steps["replica"].tolist() == list(range(11))
    assert steps["t_start_ns"].tolist() == list(range(11))
    (tmp_path / "idx3" / "samples.csv").write_text("")
    with pytest.raises(Error, match=r"idx3.samples\.csv"):
        results.steps(tmp_path)
    with pytest.raises(Error, match=r"no samples\.csv"):
        results.steps(tmp_path / "idx99")


def write_hfta(path: Path, start_s: float, epochs: int, seconds: float, samples: int) -> None:
    path.mkdir(parents=True)
    rows = [f"{e},{e},{start_s + e * seconds},{start_s + (e + 1) * seconds},{samples}" for e in range(epochs)]
    (path / "timing.csv").write_text("\n".join([",epoch,epoch_start,epoch_stop,num_samples", *rows, ""]))


def test_hftas_own_tree(tmp_path: Path) -> None:
    for run in (0, 1):
        root = tmp_path / "bert" / f"run{run}" / "cuda" / "v100"
        write_hfta(root / "fp32" / "serial", 1e9, 3, 2.0, 100)  # 50 samples a second
        write_hfta(root / "amp" / "hfta" / "B4", 1e9, 3, 2.0, 400)  # 200
        for i in range(2):  # 50 each; the second starts half an epoch later, and only the overlap counts
            write_hfta(root / "fp32" / "concurrent" / "B2" / f"idx{i}", 1e9 + i, 3, 2.0, 100)
    loaded = results.load(tmp_path / "bert")
    assert set(loaded["job"]) == {"bert"}
    assert sorted(set(loaded["repeat"])) == [0, 1]
    summary = results.summarize(loaded)
    assert row(summary, "serial", 1)["rate"] == pytest.approx(50)
    assert row(summary, "concurrent", 2)["rate"] == pytest.approx(100)
    assert row(summary, "hfta", 4, "amp")["normalized"] == pytest.approx(4)
    (tmp_path / "bert" / "run0" / "cuda" / "v100" / "fp32" / "serial" / "timing.csv").write_text("epoch\n0\n")
    with pytest.raises(Error, match=r"serial.timing\.csv: no column 'epoch_start'"):
        results.load(tmp_path / "bert")


def test_ratios_are_paired_by_repeat() -> None:
    # The machine slows down from repeat to repeat; within each the ratio is 2 exactly.
    rates = [100.0, 80.0, 40.0]
    rows = [("serial", "fp32", 1, k, r) for k, r in enumerate(rates)]
    rows += [("hfta", "fp32", 2, k, 2 * r) for k, r in enumerate(rates)]
    fused = row(results.summarize(table(*rows)), "hfta", 2)
    assert fused["normalized"] == pytest.approx(2)
    assert fused["low"] == pytest.approx(2)
    assert fused["high"] == pytest.approx(2)
    assert fused["runs"] == 3
    assert fused["rate_low"] < fused["rate"] < fused["rate_high"]


def test_interval_is_students() -> None:
    ratios = [1.9, 2.0, 2.2]
    rows = [("serial", "fp32", 1, k, 10.0) for k in range(3)]
    rows += [("hfta", "fp32", 2, k, 10 * r) for k, r in enumerate(ratios)]
    fused = row(results.summarize(table(*rows)), "hfta", 2)
    logs = np.log(ratios)
    half = 4.302652729911275 * logs.std(ddof=1) / math.sqrt(3)
    assert fused["low"] == pytest.approx(math.exp(logs.mean() - half))
    assert fused["high"] == pytest.approx(math.exp(logs.mean() + half))


def test_one_run_has_the_interval_from_within() -> None:
    one = pd.concat([
        table(("serial", "fp32", 1, 0, 100.0), low=97.0, high=103.0),
        table(("hfta", "fp32", 2, 0, 200.0), low=192.0, high=208.0),
    ])  # fmt: skip
    fused = row(results.summarize(one), "hfta", 2)
    assert fused["normalized"] == pytest.approx(2)
    assert fused["low"] == pytest.approx(2 * math.exp(-0.05))  # √(3 %² + 4 %²)
    assert fused["high"] == pytest.approx(2 * math.exp(0.05))
    serial = row(results.summarize(one), "serial", 1)
    assert (serial["normalized"], serial["low"], serial["high"]) == pytest.approx((1, 0.97, 1.03))


def test_without_a_baseline_nothing_is_normalised() -> None:
    summary = results.summarize(table(("hfta", "fp32", 2, 0, 200.0)))
    assert math.isnan(row(summary, "hfta", 2)["normalized"])
    assert row(summary, "hfta", 2)["rate"] == 200


def test_failed_runs_are_counted_and_left_out() -> None:
    rows = [("serial", "fp32", 1, 0, 10.0), ("hfta", "fp32", 8, 0, math.nan), ("hfta", "fp32", 2, 0, math.nan),
            ("hfta", "fp32", 2, 1, 20.0)]  # fmt: skip
    summary = results.summarize(table(*rows))
    assert summary["mode"].tolist() == ["serial", "hfta", "hfta"]
    nothing, half = row(summary, "hfta", 8), row(summary, "hfta", 2)
    assert (nothing["runs"], nothing["failed"], nothing["failure"]) == (0, 1, "oom")
    assert (half["runs"], half["failed"]) == (1, 1)
    assert half["normalized"] == pytest.approx(2)


@given(st.lists(st.floats(1, 1e6), min_size=2, max_size=6), st.floats(0.1, 10))
def test_the_unit_of_rates_does_not_matter(rates: list[float], factor: float) -> None:
    def normalized(scale: float) -> float:
        rows = [("serial", "fp32", 1, k, scale * r) for k, r in enumerate(rates)]
        rows += [("hfta", "fp32", 2, k, scale * r * (1 + k)) for k, r in enumerate(rates)]
        return float(row(results.summarize(table(*rows)), "hfta", 2)["normalized"])

    assert normalized(factor) == pytest.approx(normalized(1.0))


def test_wide_has_hftas_columns_and_only_measured_values(tmp_path: Path) -> None:
    rows = [("hfta", "fp32", B, k, 10.0 * B + k) for B in (1, 4) for k in range(2)]
    rows += [("serial", "fp32", 1, k, 9.0) for k in range(2)] + [("hfta", "fp32", 8, 0, math.nan)]
    wide = results.wide(table(*rows))
    results.save_csv(wide, tmp_path / "x.csv", index=True)
    read = pd.read_csv(tmp_path / "x.csv", index_col="B")
    assert list(read.columns) == [
        f"{m}:fp32:{c}" for m in ("serial", "hfta") for c in ("0", "1", "avg", "min", "max")
    ]
    assert read.index.tolist() == [1, 4]
    assert read.loc[4, "hfta:fp32:avg"] == 40.5
    assert math.isnan(read.loc[4, "serial:fp32:avg"])
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]
