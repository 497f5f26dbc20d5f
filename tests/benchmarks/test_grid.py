# SPDX-License-Identifier: MIT
"""benchmarks/ops/grid.py: its cells, the choice of them, the table, and the command."""

import csv
import itertools
import subprocess
import sys

import grid
import grid_table
import pytest
from grid_cells import MOST_FLOP, MOST_NUMBERS, SPACES
from pairwise import pairwise

from dnnsuite.errors import InvalidArgument

FACTORS = {"a": [1, 2, 3], "b": [1, 2, 3, 4], "c": ["x", "y"], "d": [0, 1, 2]}


def pairs(chosen):
    return {
        (m, values[m], n, values[n])
        for values in chosen
        for m, n in itertools.combinations(sorted(values), 2)
    }


def test_every_two_values_meet():
    chosen = pairwise(FACTORS, lambda values: True, seed=0)
    everything = [dict(zip(FACTORS, values, strict=True)) for values in itertools.product(*FACTORS.values())]
    assert pairs(chosen) == pairs(everything)
    assert len(chosen) < len(everything) / 2


def test_only_what_is_allowed_and_so_many():
    chosen = pairwise(FACTORS, lambda values: values["a"] != values["b"], seed=1)
    assert all(values["a"] != values["b"] for values in chosen)
    assert pairwise(FACTORS, lambda values: True, seed=1, most=3) == pairwise(FACTORS, lambda v: True, 1)[:3]
    assert pairwise(FACTORS, lambda values: False, seed=1) == []


@pytest.mark.parametrize("op", SPACES)
def test_a_cell_of_each_operator_runs(op):
    """In all variants, the smallest of a few."""
    space = SPACES[op]
    chosen = pairwise(space.factors, space.allowed, 0, 12)
    assert all(space.cost(v)[0] <= MOST_FLOP and space.cost(v)[1] <= MOST_NUMBERS for v in chosen)
    values = min(chosen, key=lambda v: sum(space.cost(v)))
    calls = grid.variants(space, values, 2)
    assert next(iter(calls)) == "ours"
    assert len(calls) == (3 if space.images else 2)
    for call in calls.values():
        call()


def cell(op, ratio):
    return grid_table.Cell(op, "n=1", "own", 4, 10.0, 10.0 * ratio, None, ratio)


def test_the_table_tells_the_worst():
    cells = [cell("linear", 1.0 + i / 10) for i in range(11)] + [cell("pool", 0.5)]
    text = grid_table.markdown(cells, "header").splitlines()
    assert text[0] == "header"
    assert text[4:6] == ["| linear | 11 | 0 | 1.00 | 1.50 |", "| pool | 1 | 1 | 0.50 | 0.50 |"]
    assert text[9] == "| pool n=1 | own | 10 | 5 | 0.50 |"
    assert len(text) == 9 + grid_table.WORST


def test_a_cell_by_its_words():
    text = "samples=5 inputs=3 outputs=7 bias=True batch=own"
    values = grid.parsed(text, SPACES["linear"])
    assert values == {"samples": 5, "inputs": 3, "outputs": 7, "bias": True, "batch": "own"}
    assert grid.parsed(f"{grid.shape_of(values)} batch=own", SPACES["linear"]) == values
    assert grid.parsed("samples=2 channels=3 side=9 window=(3, 2, 1) batch=own", SPACES["max_pool"])[
        "window"
    ] == (
        3,
        2,
        1,
    )
    for wrong in ("samples=5", text.replace("own", "both"), f"{text} side=4"):
        with pytest.raises(InvalidArgument):
            grid.parsed(wrong, SPACES["linear"])


def test_what_was_timed_is_kept(tmp_path):
    file = tmp_path / "grid.md"
    assert grid_table.kept(file, 4) == []
    cells = [cell("linear", 1.5), cell("pool", 0.5)]
    grid_table.write(file, cells, "header")
    assert grid_table.kept(file, 4) == cells
    assert grid_table.kept(file, 8) == []


def test_the_command(tmp_path):
    command = [sys.executable, grid.__file__, "--op", "layer_norm", "--cells", "2", "--models", "2"]
    fast = ["--rounds", "1", "--segment", "0.001", "--markdown", tmp_path / "results/grid.md"]
    told = subprocess.run(
        [*command, *fast], capture_output=True, text=True, check=True, timeout=100, cwd=tmp_path
    )
    assert "the 10 worst of 2" in told.stdout
    written = tmp_path / "results/grid.csv"
    rows = list(csv.DictReader(written.read_text(encoding="utf-8").splitlines()))
    assert [row["op"] for row in rows] == ["layer_norm"] * 2
    assert (tmp_path / "results/grid.md").read_text(encoding="utf-8").startswith("# Operators over a grid")
    written.write_text("".join(written.read_text(encoding="utf-8").splitlines(True)[:2]), encoding="utf-8")
    again = subprocess.run(
        [*command, *fast, "--resume"], capture_output=True, text=True, check=True, timeout=100, cwd=tmp_path
    )
    assert again.stdout.splitlines()[0].endswith(f"layer_norm {rows[1]['shape']} {rows[1]['batch']}")
    assert next(iter(csv.DictReader(written.read_text(encoding="utf-8").splitlines()))) == rows[0]
