# SPDX-License-Identifier: MIT
"""benchmarks/ops/grid.py: its cells, the choice of them, what is timed, the table, and the command."""

import csv
import itertools
import sys

import grid
import grid_sides
import grid_table
import grid_temperature
import pytest
import torch
from grid_cells import MOST_FLOP, MOST_NUMBERS
from grid_spaces import SPACES
from pairwise import pairwise

import forked_program
from dnnsuite.errors import InvalidArgument

FACTORS = {"a": [1, 2, 3], "b": [1, 2, 3, 4], "c": ["x", "y"], "d": [0, 1, 2]}


def pairs(chosen):
    return {(m, values[m], n, values[n]) for values in chosen for m, n in itertools.combinations(sorted(values), 2)}


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
    """On all sides, the smallest of a few: each layer's backward before the next, or all forwards before."""
    space = SPACES[op]
    chosen = pairwise(space.factors, space.allowed, 0, 12)
    assert all(space.cost(v)[0] <= MOST_FLOP and space.cost(v)[1] <= MOST_NUMBERS for v in chosen)
    values = min(chosen, key=lambda v: sum(space.cost(v)))
    sides = grid_sides.sides(space, values, 2)
    assert next(iter(sides)) == grid_sides.OURS
    assert len(sides) == (3 if space.images else 2)
    for side in sides.values():
        side.through()
        found = gradients(side)
        side.clear()
        assert gradients(side) == []
        side.backward(side.forward())
        if op != "dropout":  # which draws anew
            torch.testing.assert_close(gradients(side), found)


def gradients(side):
    inputs = [x for own in side.inputs for x in own]
    return [t.grad for t in [*side.parameters, *inputs] if t.grad is not None]


@pytest.mark.parametrize("batch", ["shared", "own"])
def test_both_sides_compute_the_same(batch):
    values = {"samples": 3, "channels": 3, "side": 4, "batch": batch}
    ours, contiguous, last = grid_sides.sides(SPACES["batch_norm"], values, 2).values()
    for loop in (contiguous, last, contiguous.apart()):
        torch.testing.assert_close(ours.forward()[0].unbind(0), tuple(loop.forward()))


def test_cold_layers_have_no_input_in_common():
    values = {"samples": 3, "inputs": 4, "outputs": 2, "bias": True, "batch": "shared"}
    _, loop = grid_sides.sides(SPACES["linear"], values, 2).values()
    assert len({x.data_ptr() for (x,) in loop.inputs}) == 1
    assert len({x.data_ptr() for (x,) in loop.apart().inputs}) == 2


@pytest.fixture
def small_caches(tmp_path, monkeypatch):
    for index, size in enumerate(("2K", "4K")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}/size").write_text(f"{size}\n")
    monkeypatch.setattr(grid_temperature, "CACHES", tmp_path)


def test_what_runs_before_a_cold_layer_fills_the_caches(small_caches):
    others = grid_temperature.OtherLayers()
    others()
    walked = [t for t in vars(others).values() if isinstance(t, torch.Tensor)]
    assert sum(t.nbytes for t in walked) == 4096 * 3 // 2
    assert [t.unique().tolist() for t in walked] == [[0.0], [1.0]]


def test_hot_and_cold_times(small_caches):
    values = {"samples": 2, "channels": 4, "side": 4, "batch": "own"}
    watch = grid_temperature.Stopwatch(SPACES["group_norm"], values, 2, 1e-4)
    watch.time_hot(1)
    watch.time_cold(2, grid_temperature.OtherLayers())
    assert len(watch.hot) == 3
    assert grid_sides.OURS in watch.cold
    assert 2 <= len(watch.cold) <= 3
    assert all(seconds > 0 for seconds in [*watch.hot.values(), *watch.cold.values()])
    assert grid_temperature.ratio({"ours": 2.0, "contiguous": 5.0, "channels last": 3.0}) == 1.5


def cell(op, ratio, cold_ratio=1.25):
    return grid_table.Cell(op, "n=1", "own", 4, 10.0, 10.0 * ratio, None, ratio, 20.0, cold_ratio)


def test_the_table_tells_the_worst():
    cells = [cell("linear", 1.0 + i / 10) for i in range(11)] + [cell("pool", 0.5, 0.75)]
    text = grid_table.markdown(cells, "header").splitlines()
    assert text[0] == "header"
    assert text[4:7] == [
        "| linear | 11 | 0 | 1.00 | 1.50 | 0 | 1.25 | 1.25 |",
        "| pool | 1 | 1 | 0.50 | 0.50 | 1 | 0.75 | 0.75 |",
        "| all | 12 | 1 | 0.50 | 1.50 | 1 | 0.75 | 1.25 |",
    ]
    assert text[10] == text[13 + grid_table.WORST] == "| pool n=1 | own | 10 | 0.50 | 20 | 0.75 |"
    assert len(text) == 13 + 2 * grid_table.WORST


def test_a_cell_by_its_words():
    text = "samples=5 inputs=3 outputs=7 bias=True batch=own"
    values = grid.parsed(text, SPACES["linear"])
    assert values == {"samples": 5, "inputs": 3, "outputs": 7, "bias": True, "batch": "own"}
    assert grid.parsed(f"{grid.shape_of(values)} batch=own", SPACES["linear"]) == values
    assert grid.parsed("samples=2 channels=3 side=9 window=(3, 2, 1) batch=own", SPACES["max_pool"])["window"] == (
        3,
        2,
        1,
    )
    words = "samples=1 channels=3 side=7 kind=nearest scale=size batch=own"
    assert grid.parsed(words, SPACES["upsample"])["scale"] == "size"  # among numbers
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


def test_cells_without_cold_times_are_timed_anew(tmp_path):
    file = tmp_path / "grid.md"
    grid_table.write(file, [cell("linear", 1.5)], "header")
    table = file.with_suffix(".csv")
    hot = [line.rsplit(",", 2)[0] for line in table.read_text(encoding="utf-8").splitlines()]
    table.write_text("\n".join(hot), encoding="utf-8")
    assert grid_table.kept(file, 4) == []


def test_the_command(tmp_path, monkeypatch, capsys):
    command = [grid.__file__, "--op", "layer_norm", "--cells", "2", "--models", "2"]
    fast = ["--rounds", "1", "--segment", "0.001", "--markdown", str(tmp_path / "results/grid.md")]
    told = forked_program.script(*command, *fast, cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert "the 10 worst of 2" in told.stdout
    written = tmp_path / "results/grid.csv"
    rows = list(csv.DictReader(written.read_text(encoding="utf-8").splitlines()))
    assert [row["op"] for row in rows] == ["layer_norm"] * 2
    assert (tmp_path / "results/grid.md").read_text(encoding="utf-8").startswith("# Operators over a grid")
    written.write_text("".join(written.read_text(encoding="utf-8").splitlines(True)[:2]), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", [*command, *fast, "--resume", "--as-it-is"])
    grid.main()
    assert capsys.readouterr().out.splitlines()[1].endswith(f"layer_norm {rows[1]['shape']} {rows[1]['batch']}")
    assert next(iter(csv.DictReader(written.read_text(encoding="utf-8").splitlines()))) == rows[0]
    (tmp_path / "results/grid.md").unlink()
    grid.main()
    assert "| layer_norm | 2 |" in (tmp_path / "results/grid.md").read_text(encoding="utf-8")
