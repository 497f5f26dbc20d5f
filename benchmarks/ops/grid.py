# SPDX-License-Identifier: MIT
"""Layers over the shapes that they are used with, against a loop of torch over the models in its better layout.

    python benchmarks/ops/grid.py
    python benchmarks/ops/grid.py --op convolution max_pool --cells 60 --seed 1 --out results

A cell is a layer of B models with its shapes: forward and backward, one thread, CPU time, the variants in turns.
Any two values of two factors meet in some cell (`--cells` cuts that short). Torch runs contiguous and, for images,
channels last; its better time counts. `batch` is "shared" (one for all models, without a gradient) or "own". A ratio
is how many times as fast ours is; the ten worst are printed, and what is below 0.97 is measured again.
`--out DIR` has grid.csv and grid.md, written anew after each operator.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import command
import setting
import torch
from grid_cells import SPACES, Space
from pairwise import Values, pairwise

import dnnsuite
from dnnsuite import _C
from dnnsuite._files import replacing, write_text
from timing import interleaved

BAR = 0.97
WORST = 10


@dataclass(frozen=True)
class Cell:
    """Microseconds of a forward and backward of all models, and how many times as fast ours is as torch's better."""

    op: str
    shape: str
    batch: str
    models: int
    ours_us: float
    contiguous_us: float
    channels_last_us: float | None
    ratio: float


def _tensor(shape: Any) -> torch.Tensor:
    if isinstance(shape[0], tuple):
        return torch.randint(shape[1], shape[0])
    return torch.randn(shape)


def _last(x: torch.Tensor) -> torch.Tensor:
    """Images [N, C, H, W] with the channels last in memory, also where they have a single one."""
    rows = x.movedim(1, -1).contiguous().flatten()
    return rows.view(*x.movedim(1, -1).shape).movedim(-1, 1)


def _loop(
    models: list[torch.nn.Module], inputs: list[list[torch.Tensor]], differentiated: bool
) -> Callable[[], None]:
    """Forward and backward of the models one after the other."""
    leaves = [[own[0].detach().requires_grad_() if differentiated else own[0], *own[1:]] for own in inputs]
    parameters = [p for model in models for p in model.parameters()]
    grads = [torch.randn_like(model(*own)) for model, own in zip(models, leaves, strict=True)]

    def run() -> None:
        for p in parameters:
            p.grad = None
        for model, own, grad in zip(models, leaves, grads, strict=True):
            if differentiated:
                own[0].grad = None
            model(*own).backward(grad)

    return run


def layer_of(models: list[torch.nn.Module]) -> torch.nn.Module:
    """The layer of ours for B layers of torch; where there is none, their array."""
    ours = getattr(dnnsuite.nn, type(models[0]).__name__, None)
    return ours.from_models(models) if isinstance(ours, type) else dnnsuite.fuse(models)


def _array(
    models: list[torch.nn.Module], inputs: list[list[torch.Tensor]], shared: bool, differentiated: bool
) -> Callable[[], None]:
    """The same of their array, on [B, ...]."""
    layer = layer_of(models)
    B = len(models)
    stacked = [
        dnnsuite.stack(own[0], B)
        if shared
        else dnnsuite.nn.functional.convolution.channels_last(torch.stack(own))
        if own[0].dim() == 4
        else torch.stack(own)
        for own in zip(*inputs, strict=True)
    ]
    if differentiated:
        stacked[0].requires_grad_()
    grad = torch.randn_like(layer(*stacked))
    parameters = list(layer.parameters())

    def run() -> None:
        for p in parameters:
            p.grad = None
        stacked[0].grad = None
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
        "ours": _array(models, laid_out if space.images else inputs, shared, differentiated),
        "contiguous": _loop(models, inputs, differentiated),
    }
    if space.images:
        last = [space.layer(values).to(memory_format=torch.channels_last) for _ in range(B)]
        found["channels last"] = _loop(last, laid_out, differentiated)
    return found


def measure(op: str, values: Values, B: int, rounds: int, segment_s: float) -> Cell:
    """Time one cell; one below the bar once more, with three times the rounds."""
    calls = variants(SPACES[op], values, B)
    cell = None
    for more in (1, 3):
        timings = interleaved(calls, rounds * more, segment_s)
        ours, contiguous, *last = (t.min_s * 1e6 for t in timings.values())
        shape = " ".join(f"{name}={value}" for name, value in values.items() if name != "batch")
        ratio = min([contiguous, *last]) / ours
        cell = Cell(op, shape, values["batch"], B, ours, contiguous, last[0] if last else None, ratio)
        if ratio >= BAR:
            break
    assert cell is not None
    return cell


def markdown(cells: list[Cell], footer: str) -> str:
    """The worst cells, then how many of each operator are below the bar."""
    lines = [
        "| operator | cells | below 0.97 | least | median |",
        "|---|---|---|---|---|",
    ]
    for op in dict.fromkeys(cell.op for cell in cells):
        ratios = sorted(cell.ratio for cell in cells if cell.op == op)
        below = sum(ratio < BAR for ratio in ratios)
        lines.append(f"| {op} | {len(ratios)} | {below} | {ratios[0]:.2f} | {ratios[len(ratios) // 2]:.2f} |")
    lines += ["", "| the worst | batch | ours µs | torch's better µs | ratio |", "|---|---|---|---|---|"]
    lines += [
        f"| {cell.op} {cell.shape} | {cell.batch} | {cell.ours_us:.0f} | {cell.ours_us * cell.ratio:.0f} | "
        f"{cell.ratio:.2f} |"
        for cell in worst(cells)
    ]
    return "\n".join([*lines, "", footer]) + "\n"


def worst(cells: list[Cell]) -> list[Cell]:
    return sorted(cells, key=lambda cell: cell.ratio)[:WORST]


def write(folder: Path, cells: list[Cell], footer: str) -> None:
    with (
        replacing(folder / "grid.csv") as temporary,
        temporary.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.DictWriter(file, [field.name for field in fields(Cell)])
        writer.writeheader()
        writer.writerows(asdict(cell) for cell in cells)
    write_text(folder / "grid.md", markdown(cells, footer))


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
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for grid.csv and grid.md")
    return parser.parse_args()


def main() -> None:
    chosen = options()
    torch.set_num_threads(1)
    torch.manual_seed(chosen.seed)
    kept = not chosen.as_it_is and _C.heap_retain()
    if chosen.out:
        chosen.out.mkdir(parents=True, exist_ok=True)
    footer = (
        f"B={chosen.models}, one thread, CPU time, least of the rounds; heap {'kept' if kept else 'as it is'}. "
        f"{setting.machine()}."
    )
    cells: list[Cell] = []
    for op in chosen.op:
        space = SPACES[op]
        for values in pairwise(space.factors, space.allowed, chosen.seed, chosen.cells):
            cells.append(measure(op, values, chosen.models, chosen.rounds, chosen.segment))
            cell = cells[-1]
            print(f"{cell.ratio:6.2f}  {op} {cell.shape} {cell.batch}", flush=True)
        if chosen.out:
            write(chosen.out, cells, footer)
    print(f"\nthe {WORST} worst of {len(cells)}:")
    for cell in worst(cells):
        print(f"{cell.ratio:6.2f}  {cell.op} {cell.shape} {cell.batch}  ours {cell.ours_us:.0f} µs")


if __name__ == "__main__":
    command.run(main, "operators")
