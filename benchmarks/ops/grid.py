# SPDX-License-Identifier: MIT
"""Layers over the shapes that they are used with, against a loop of torch over the models in its better layout.

    python benchmarks/ops/grid.py
    python benchmarks/ops/grid.py --markdown benchmarks/results/grid.md --resume
    python benchmarks/ops/grid.py --op convolution max_pool --cells 60 --seed 1
    python benchmarks/ops/grid.py --op linear --cell "samples=64 inputs=100 outputs=10 bias=True batch=own"

A cell is a layer of B models with its shapes: forward and backward, one thread, CPU time, the variants in turns.
Any two values of two factors meet in some cell (`--cells` cuts that short). Torch runs contiguous and, for images,
channels last; its better time counts. `batch` is "shared" (one for all models, without a gradient) or "own". A ratio
is how many times as fast ours is; the ten worst are printed, and what is below 0.97 is measured again, up to twice.

A loop is through with a model before it begins the next: of what a layer writes it keeps one model's in the caches, and
the array all models'. So cells that do little but read and write (norms, 1 x 1 filters of few channels, embeddings) are
a matter of memory, and of who else uses it: time them on a quiet machine.

The whole grid takes about ten minutes. `--markdown FILE` has the tables and, beside it with the ending .csv, every
cell; both are written anew after each cell, and `--resume` goes on where a run was interrupted.
"""

from __future__ import annotations

import argparse
import ast
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import command
import setting
import torch
from grid_cells import SPACES, Space
from grid_table import BAR, WORST, Cell, kept, worst, write
from pairwise import Values, pairwise

import dnnsuite
from dnnsuite import _C, _memory
from dnnsuite.errors import InvalidArgument
from timing import interleaved

AGAIN = (1, 3, 3)  # times the rounds, while the cell is below the bar


def _tensor(shape: Any) -> torch.Tensor:
    if isinstance(shape[0], tuple):
        return torch.randint(shape[1], shape[0])
    return torch.randn(shape)


def _last(x: torch.Tensor) -> torch.Tensor:
    """Images [N, C, H, W] with the channels last in memory, also where they have a single one."""
    rows = x.movedim(1, -1).contiguous().flatten()
    return rows.view(*x.movedim(1, -1).shape).movedim(-1, 1)


def _alike(first: torch.Tensor, other: torch.Tensor) -> bool:
    """Return True if `other` is differentiated with the first: queries, keys and values."""
    return other.dim() == 4 and other.shape == first.shape and other.is_floating_point()


def _loop(
    models: list[torch.nn.Module], inputs: list[list[torch.Tensor]], differentiated: bool
) -> Callable[[], None]:
    """Forward and backward of the models one after the other."""
    leaves = [
        [
            x.detach().requires_grad_() if differentiated and (x is own[0] or _alike(own[0], x)) else x
            for x in own
        ]
        for own in inputs
    ]
    parameters = [p for model in models for p in model.parameters()]
    grads = [torch.randn_like(model(*own)) for model, own in zip(models, leaves, strict=True)]

    def run() -> None:
        for p in parameters:
            p.grad = None
        for model, own, grad in zip(models, leaves, grads, strict=True):
            for x in own:
                x.grad = None
            model(*own).backward(grad)

    return run


def layer_of(models: list[torch.nn.Module]) -> torch.nn.Module:
    """The layer of ours for B layers of torch; where there is none, their array."""
    ours = getattr(dnnsuite.nn, type(models[0]).__name__, None)
    return ours.from_models(models) if isinstance(ours, type) else dnnsuite.fuse(models)


def _array(
    space: Space,
    models: list[torch.nn.Module],
    inputs: list[list[torch.Tensor]],
    shared: bool,
    differentiated: bool,
) -> Callable[[], None]:
    """The same of their array, on [B, ...]."""
    layer: Any = space.ours(models) if space.ours else layer_of(models)
    B = len(models)
    stacked = [
        dnnsuite.stack(own[0], B)
        if shared
        else dnnsuite.nn.functional.convolution.channels_last(torch.stack(own))
        if space.images
        else torch.stack(own)
        for own in zip(*inputs, strict=True)
    ]
    first = inputs[0]
    for x, own in zip(stacked, first, strict=True):
        x.requires_grad_(differentiated and (own is first[0] or _alike(first[0], own)))
    grad = torch.randn_like(layer(*stacked))
    parameters = list(layer.parameters()) if isinstance(layer, torch.nn.Module) else []

    def run() -> None:
        for p in parameters:
            p.grad = None
        for x in stacked:
            x.grad = None
        layer(*stacked).backward(grad)

    return run


def variants(space: Space, values: Values, B: int) -> dict[str, Callable[[], None]]:
    """What is timed of one cell: ours, then torch's loop in each layout."""
    models = [space.layer(values) for _ in range(B)]
    shared = values["batch"] == "shared"
    first = [_tensor(shape) for shape in space.inputs(values)]
    inputs = [first if shared or i == 0 else [_tensor(s) for s in space.inputs(values)] for i in range(B)]
    differentiated = first[0].is_floating_point() and not (
        shared and any(True for _ in models[0].parameters())
    )
    laid_out = [[_last(x) if x.dim() == 4 else x for x in own] for own in inputs]
    found = {
        "ours": _array(space, models, laid_out if space.images else inputs, shared, differentiated),
        "contiguous": _loop(models, inputs, differentiated),
    }
    if space.images:
        last = [space.layer(values).to(memory_format=torch.channels_last) for _ in range(B)]
        found["channels last"] = _loop(last, laid_out, differentiated)
    return found


def measure(op: str, values: Values, B: int, rounds: int, segment_s: float) -> Cell:
    """Time one cell, by the least of its rounds; one below the bar gets more of them."""
    calls = variants(SPACES[op], values, B)
    least: dict[str, float] = {}
    for more in AGAIN:
        timings = interleaved(calls, rounds * more, segment_s)
        least = {name: min(t.min_s * 1e6, least.get(name, t.min_s * 1e6)) for name, t in timings.items()}
        ours, contiguous, *last = least.values()
        if (ratio := min([contiguous, *last]) / ours) >= BAR:
            break
    return Cell(op, shape_of(values), values["batch"], B, ours, contiguous, last[0] if last else None, ratio)


def shape_of(values: Values) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items() if name != "batch")


def parsed(text: str, space: Space) -> Values:
    """Values of a cell from `name=value name=value ...`, any that make sense, listed in the grid or not."""
    pairs = [word.partition("=")[::2] for word in text.replace(", ", ",").split()]
    found = dict(pairs)
    if found.keys() != space.factors.keys():
        raise InvalidArgument(
            f"--cell {text!r}: a cell of it has {' '.join(space.factors)}, each as name=value"
        )
    values = {
        name: found[name] if isinstance(known[0], str) else ast.literal_eval(found[name])
        for name, known in space.factors.items()
    }
    if values["batch"] not in space.factors["batch"] or not space.valid(values):
        raise InvalidArgument(f"--cell {text!r}: there is no such cell")
    return values


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--op", nargs="+", choices=SPACES, default=list(SPACES), metavar="OP", help="default: all"
    )
    parser.add_argument("--cells", type=int, help="most cells of an operator (default: all pairs of values)")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of cells (default 0)")
    parser.add_argument("--models", type=int, default=4, help="size of the array (default 4)")
    parser.add_argument(
        "--rounds", type=int, default=5, help="in which each variant has its turn (default 5)"
    )
    parser.add_argument("--segment", type=float, default=0.01, help="seconds of a turn (default 0.01)")
    parser.add_argument(
        "--as-it-is", action="store_true", help="let the heap give pages back, as without a StepRunner"
    )
    parser.add_argument(
        "--cell", metavar="TEXT", help="time this cell of the one --op, factors as name=value"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="the same as --markdown DIR/grid.md")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="tables; every cell in FILE's .csv")
    parser.add_argument(
        "--resume", action="store_true", help="keep the cells of FILE's .csv, time the others"
    )
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
        f"# Operators over a grid of shapes, {setting.machine()}\n\n"
        f"`python benchmarks/ops/grid.py`, {time.strftime('%Y-%m-%d', time.gmtime())}: forward and backward of "
        f"B={chosen.models} models, one thread, CPU time, least of the rounds, over a loop of torch in its better "
        f"layout; memory {'kept, as in training' if heap else 'as it is'}. Every cell is in the .csv beside this file."
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
    for op, values in chosen_cells(chosen):
        if (op, shape_of(values), values["batch"]) in known:
            continue
        cells.append(cell := measure(op, values, chosen.models, chosen.rounds, chosen.segment))
        print(f"{cell.ratio:6.2f}  {op} {cell.shape} {cell.batch}", flush=True)
        if chosen.markdown:
            write(chosen.markdown, cells, header(chosen, heap))
    print(f"\nthe {WORST} worst of {len(cells)}:")
    for cell in worst(cells):
        print(f"{cell.ratio:6.2f}  {cell.op} {cell.shape} {cell.batch}  ours {cell.ours_us:.0f} µs")


if __name__ == "__main__":
    command.run(main, "cells")
