# SPDX-License-Identifier: MIT
"""Layers over the shapes that they are used with, against a loop of torch over the models in its better layout.

    python benchmarks/ops/grid.py
    python benchmarks/ops/grid.py --markdown benchmarks/results/grid.md --resume
    python benchmarks/ops/grid.py --op convolution max_pool --cells 60 --seed 1
    python benchmarks/ops/grid.py --op linear --cell "samples=64 inputs=100 outputs=10 bias=True batch=own"

A cell is a layer of B models with its shapes: forward and backward, one thread, CPU time, the variants in turns.
Any two values of two factors meet in some cell (`--cells` cuts that short). Torch runs contiguous and, for images,
channels last; its better time counts. `batch` is "shared" (one for all models, without a gradient) or "own". A ratio
is how many times as fast ours is; the ten worst are printed, and what is below 0.97 is measured again, up to twice. A
layout that takes half as long again as the other has one turn only.

A cell has two ratios. Hot, the same cell again and again: the loop is through with a model, forward and backward,
before it begins the next, so that it finds its operands, and memory for its result, in the caches, which do not hold
those of all models. Training cannot do that: the other layers of the model run before a layer's forward, and again
before its backward. So cold: before all forwards, and before all backwards, of either side memory is read and written
until nothing of the cell is left in the caches, outside the clock; results are kept, and of a batch that the models
share each model of the loop has a copy, for all of another model's step lies before its own. The code stays hot, to the
loop's good, which calls it B times as often.

The whole grid takes about 25 minutes of a quiet core. `--markdown FILE` has the tables and, beside it with the
ending .csv, every cell; both are written anew after each cell, and `--resume` goes on where a run was interrupted.
"""

from __future__ import annotations

import argparse
import ast
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import command
import setting
import torch
from grid_cells import Space
from grid_sides import OURS
from grid_spaces import SPACES
from grid_table import BAR, TEMPERATURES, WORST, Cell, kept, worst, write
from grid_temperature import OtherLayers, Stopwatch, ratio
from pairwise import Values, pairwise

from dnnsuite import _C, _memory
from dnnsuite.errors import InvalidArgument

AGAIN = (1, 3, 3)  # times the rounds, the later ones while the cell is below the bar


def measure(op: str, values: Values, B: int, rounds: int, segment_s: float, others: OtherLayers) -> Cell:
    """Time one cell, by the least of its rounds; one below the bar gets more of them."""
    watch = Stopwatch(SPACES[op], values, B, segment_s)
    for more in AGAIN:
        if more == 1 or ratio(watch.hot) < BAR:
            watch.time_hot(rounds * more)
        if more == 1 or ratio(watch.cold) < BAR:
            watch.time_cold(rounds * more, others)
    ours, contiguous, *last = (1e6 * seconds for seconds in watch.hot.values())
    return Cell(
        op,
        shape_of(values),
        values["batch"],
        B,
        ours,
        contiguous,
        last[0] if last else None,
        ratio(watch.hot),
        1e6 * watch.cold[OURS],
        ratio(watch.cold),
    )


def shape_of(values: Values) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items() if name != "batch")


def parsed(text: str, space: Space) -> Values:
    """Values of a cell from `name=value name=value ...`, any that make sense, listed in the grid or not."""
    pairs = [word.partition("=")[::2] for word in text.replace(", ", ",").split()]
    found = dict(pairs)
    if found.keys() != space.factors.keys():
        raise InvalidArgument(f"--cell {text!r}: a cell of it has {' '.join(space.factors)}, each as name=value")
    values = {name: _value(found[name], known) for name, known in space.factors.items()}
    if values["batch"] not in space.factors["batch"] or not space.valid(values):
        raise InvalidArgument(f"--cell {text!r}: there is no such cell")
    return values


def _value(text: str, known: Sequence[Any]) -> Any:
    """Return a factor's value: one of its words, or a number or several."""
    return text if text in known or isinstance(known[0], str) else ast.literal_eval(text)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", nargs="+", choices=SPACES, default=list(SPACES), metavar="OP", help="default: all")
    parser.add_argument("--cells", type=int, help="most cells of an operator (default: all pairs of values)")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of cells (default 0)")
    parser.add_argument("--models", type=int, default=4, help="size of the array (default 4)")
    parser.add_argument("--rounds", type=int, default=5, help="in which each variant has its turn (default 5)")
    parser.add_argument("--segment", type=float, default=0.01, help="seconds of a turn (default 0.01)")
    parser.add_argument("--as-it-is", action="store_true", help="let the heap give pages back, as without a StepRunner")
    parser.add_argument("--cell", metavar="TEXT", help="time this cell of the one --op, factors as name=value")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the same as --markdown DIR/grid.md")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="tables; every cell in FILE's .csv")
    parser.add_argument("--resume", action="store_true", help="keep the cells of FILE's .csv, time the others")
    chosen = parser.parse_args()
    if chosen.cell and len(chosen.op) != 1:
        parser.error("--cell is a cell of one --op")
    if chosen.out and not chosen.markdown:
        chosen.markdown = chosen.out / "grid.md"
    if chosen.resume and not chosen.markdown:
        parser.error("--resume needs the FILE of --markdown")
    return chosen


def chosen_cells(chosen: argparse.Namespace) -> Iterator[tuple[str, Values]]:
    for op in chosen.op:
        space = SPACES[op]
        if chosen.cell:
            yield op, parsed(chosen.cell, space)
        else:
            yield from ((op, v) for v in pairwise(space.factors, space.allowed, chosen.seed, chosen.cells))


def header(chosen: argparse.Namespace, heap: bool) -> str:
    return (
        f"# Operators over a grid\n\n{setting.machine()}.\n\n"
        f"`python benchmarks/ops/grid.py`, {time.strftime('%Y-%m-%d', time.gmtime())}: forward and backward of "
        f"B={chosen.models} models, one thread, CPU time, least of the rounds, over a loop of torch in its better "
        f"layout; memory {'kept, as in training' if heap else 'as it is'}. Hot: the same cell again and again, so that "
        "the loop finds one model's operands in the caches. Cold: other layers run before the forwards and before the "
        "backwards, as in a training step. Every cell is in the .csv beside this file."
    )


def main() -> None:
    chosen = options()
    torch.set_num_threads(1)
    torch.manual_seed(chosen.seed)
    heap = not chosen.as_it_is and _C.heap_retain()
    if heap:
        _memory.hold()  # as every array that is trained does
    if chosen.markdown:
        chosen.markdown.parent.mkdir(parents=True, exist_ok=True)
    cells = kept(chosen.markdown, chosen.models) if chosen.resume else []
    known = {(cell.op, cell.shape, cell.batch) for cell in cells}
    others = OtherLayers()
    print("   hot   cold")
    for op, values in chosen_cells(chosen):
        if (op, shape_of(values), values["batch"]) in known:
            continue
        cells.append(cell := measure(op, values, chosen.models, chosen.rounds, chosen.segment, others))
        print(line(cell), flush=True)
        if chosen.markdown:
            write(chosen.markdown, cells, header(chosen, heap))
    if chosen.markdown and cells:
        write(chosen.markdown, cells, header(chosen, heap))  # of a run that had nothing left to time, too
    for title, ratio_of in TEMPERATURES.items():
        print(f"\nthe {WORST} worst of {len(cells)}, {title}:")
        for cell in worst(cells, ratio_of):
            print(line(cell))


def line(cell: Cell) -> str:
    return f"{cell.ratio:6.2f} {cell.cold_ratio:6.2f}  {cell.op} {cell.shape} {cell.batch}"


if __name__ == "__main__":
    command.run(main, "cells")
