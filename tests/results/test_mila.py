# SPDX-License-Identifier: MIT
import json
import math
from pathlib import Path
from typing import Any

import pytest

from dnnsuite import results
from report_runs import mila_result


def write(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def test_the_originals_unclosed_list(tmp_path: Path) -> None:
    first, second = mila_result("vae", 10.0), mila_result("reso", 20.0, completed=False)
    write(tmp_path / "output0", "fast_0.json", f"[{json.dumps(first)},{json.dumps(second)},\n")
    vae, reso = (row for _, row in results.load(tmp_path, name="fast").iterrows())
    assert (vae["run"], vae["share"], vae["seed_rate"], vae["value"]) == ("output0", "0", 10.0, 10.0)
    assert (reso["failure"], reso["status"]) == ("crash", "failed")
    assert math.isnan(reso["value"])


def test_the_originals_last_format(tmp_path: Path) -> None:
    nan = {**mila_result("wlm", 3.0, "1"), "batch_loss": [math.nan]}
    write(tmp_path, "fast.wlm.R7.D1.20200506-101112-000001.json", json.dumps(nan))
    row = results.load(tmp_path).iloc[0]
    assert (row["run"], row["share"], row["failure"], row["plan"]) == ("7", "1", "nan", "fast")


def test_a_job_on_all_devices_has_the_share_all(tmp_path: Path) -> None:
    write(tmp_path / "output0", "fast_0,1.json", json.dumps(mila_result("scaling", 0.9, "0,1")))
    row = results.load(tmp_path).iloc[0]
    assert (row["share"], row["plan"]) == ("all", "fast")


def test_runs_are_counted_in_the_order_of_their_names(tmp_path: Path) -> None:
    for run in (10, 9):
        write(tmp_path / f"output{run}", "fast_0.json", json.dumps(mila_result("vae", float(run))))
    loaded = results.load(tmp_path)
    assert dict(zip(loaded["run"], loaded["repeat"], strict=True)) == {"output9": 0, "output10": 1}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[3]",
        '{"name": "vae"}',
        "[" * 100_000,
        json.dumps(mila_result("vae", "fast")),
        json.dumps(mila_result("vae", -5.0)),
        json.dumps(mila_result("vae", 1e308)),
    ],
    ids=lambda text: text[:12],
)
def test_a_damaged_result_is_named_and_left_out(text: str, tmp_path: Path) -> None:
    write(tmp_path / "output0", "fast_0.json", json.dumps(mila_result("vae", 1.0)))
    path = write(tmp_path / "output1", "fast_0.json", text)
    loaded = results.load(tmp_path)
    assert len(loaded) == 1
    (problem,) = loaded.attrs["problems"]
    assert problem.startswith(f"skipped: {path}: ")


def test_two_folders_with_runs_of_one_name_stay_two(tmp_path: Path) -> None:
    for node in ("a", "b"):
        (tmp_path / node).mkdir()
        write(tmp_path / node / "output0", "fast_0.json", json.dumps(mila_result("vae", 1.0)))
    loaded: Any = results.load(tmp_path / "a", tmp_path / "b")
    assert (loaded["plan_id"].nunique(), loaded["run_id"].nunique()) == (2, 2)
