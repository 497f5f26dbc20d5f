# SPDX-License-Identifier: MIT
"""Figures show what the tables say."""

import json

import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from dnnsuite import profiler
from dnnsuite._files import OutputError
from dnnsuite.profiler._breakdown import CLASSES
from dnnsuite.profiler.trace import bars, colour, timeline
from profiler_loops import Operators, loop


@pytest.fixture
def ax():
    return Figure().subplots()


def test_bars_have_the_length_of_the_shares(ax):
    table = pd.DataFrame(
        {"class": ["gemm", "host"], "ms_per_step": [3.0, 1.0], "share_pct": [75.0, 25.0], "definition": ""}
    )
    bars(table, ax)
    assert [bar.get_width() for bar in ax.patches] == [25, 75]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["host", "gemm"]


def test_a_timeline_has_a_row_per_thread_and_stream(ax):
    ms = 1_000_000
    steps = pd.DataFrame({"phase": "active", "window": 0, "t0_ns": [0, 10 * ms], "t1_ns": [10 * ms, 20 * ms]})
    phases = pd.DataFrame({"phase": ["forward"], "thread": [1], "t0_ns": [ms], "t1_ns": [3 * ms]})
    ops = pd.DataFrame(
        {
            "name": ["aten::mm", "aten::view"],
            "class": ["gemm", "view"],
            "thread": [5, 6],
            "t0_ns": [ms, 99 * ms],
            "t1_ns": [2 * ms, 99 * ms],
        }
    )
    kernels = pd.DataFrame({"class": ["conv"], "stream": [7], "t0_ns": [4 * ms], "t1_ns": [8 * ms]})
    timeline({"steps": steps, "phases": phases, "ops": ops, "kernels": kernels}, ax)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["phases", "operators", "stream 7"]
    assert ax.get_xlim() == (0, 20)
    drawn = [path.get_extents().intervalx.tolist() for each in ax.collections for path in each.get_paths()]
    assert drawn == [[1, 3], [1, 2], [4, 8]]


def test_every_class_has_a_colour_of_its_own():
    colours = [colour(name) for name in (*CLASSES, "data wait", "host", "idle")]
    assert len(set(colours)) == len(colours)


@pytest.fixture(scope="module")
def observed():
    schedule = profiler.schedule(wait=2, active=2, repeat=2)
    about = {"job": "toy", "batch_size": 3, "items_per_step": 3, "unit": "rows", "device": "cpu"}
    with profiler.profile(schedule=schedule, instruments=[Operators()], about=about) as p:
        loop(p, 9)
    return p


def test_every_table_is_a_file_with_its_definitions(observed, tmp_path):
    files = observed.save(tmp_path / "new" / "folder")
    assert all(path.is_file() for path in files)
    folder = files[0].parent
    assert {path.name for path in files} == {path.name for path in folder.iterdir()}
    lines = json.loads((folder / "definitions.json").read_text())
    for name, table in observed.tables.items():
        again = pd.read_csv(folder / f"{name}.csv")
        assert len(again) == len(table)
        assert set(lines[name]) == set(again.columns)


def test_the_record_says_everything_but_the_tables(observed, tmp_path):
    observed.save(tmp_path)
    record = json.loads((tmp_path / "profile.json").read_text())
    assert record["about"]["job"] == "toy"
    assert record["steps"] == 4
    assert sum(row["share_pct"] for row in record["breakdown"]) == pytest.approx(100)
    assert record["overhead"]["windows"] == 2
    assert record["advice"][0]["because"]
    assert record["notes"] == ["ops: 2 records were dropped"]


def test_figures_are_drawn(observed, tmp_path):
    observed.save(tmp_path)
    for name in ("timeline.png", "breakdown.png"):
        pixels = imread(tmp_path / name)
        assert pixels.shape[0] > 200
        assert len({tuple(p) for p in pixels[::7, ::7, :3].reshape(-1, 3).tolist()}) > 5


def test_a_profile_of_nothing_is_saved_too(tmp_path):
    with profiler.profile(schedule=profiler.schedule(start_iteration=9)) as p:
        loop(p, 1, 0)
    names = {path.name for path in p.save(tmp_path)}
    assert "summary.txt" in names
    assert "timeline.png" not in names
    assert "no step was observed" in (tmp_path / "summary.txt").read_text()


def test_a_folder_that_cannot_be_made_is_named(observed, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file/below"):
        observed.save(tmp_path / "file" / "below")
