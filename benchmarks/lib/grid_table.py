# SPDX-License-Identifier: MIT
"""The cells of `grid.py` that were timed: their tables, and the file that an interrupted run is resumed from."""

from __future__ import annotations

import csv
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from dnnsuite._files import replacing, write_text

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


def markdown(cells: list[Cell], header: str) -> str:
    """How many of each operator are below the bar, then the worst cells."""
    lines = [
        header,
        "",
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
    return "\n".join(lines) + "\n"


def worst(cells: list[Cell]) -> list[Cell]:
    return sorted(cells, key=lambda cell: cell.ratio)[:WORST]


def write(file: Path, cells: list[Cell], header: str) -> None:
    """The tables, and every cell in the file beside it."""
    with (
        replacing(file.with_suffix(".csv")) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as opened,
    ):
        writer = csv.DictWriter(opened, [field.name for field in fields(Cell)])
        writer.writeheader()
        writer.writerows(asdict(cell) for cell in cells)
    write_text(file, markdown(cells, header))


def kept(file: Path, models: int) -> list[Cell]:
    """The cells of an interrupted run; none if there are none."""
    try:
        with file.with_suffix(".csv").open(newline="", encoding="utf-8") as opened:
            rows = list(csv.DictReader(opened))
    except FileNotFoundError:
        return []
    cells = [
        Cell(
            row["op"],
            row["shape"],
            row["batch"],
            int(row["models"]),
            float(row["ours_us"]),
            float(row["contiguous_us"]),
            float(row["channels_last_us"]) if row["channels_last_us"] else None,
            float(row["ratio"]),
        )
        for row in rows
    ]
    return [cell for cell in cells if cell.models == models]
