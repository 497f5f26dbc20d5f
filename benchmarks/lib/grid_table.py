# SPDX-License-Identifier: MIT
"""The cells of `grid.py` that were timed: their tables, and the file that an interrupted run is resumed from."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from dnnsuite._files import replacing, write_text

BAR = 0.97
WORST = 10


@dataclass(frozen=True)
class Cell:
    """Microseconds of a forward and backward of all models, and how many times as fast ours is as torch's better: hot,
    and with other layers before the forward and before the backward, cold."""

    op: str
    shape: str
    batch: str
    models: int
    ours_us: float
    contiguous_us: float
    channels_last_us: float | None
    ratio: float
    cold_us: float
    cold_ratio: float


RatioOf = Callable[[Cell], float]
TEMPERATURES: dict[str, RatioOf] = {"hot": lambda cell: cell.ratio, "cold": lambda cell: cell.cold_ratio}


def markdown(cells: list[Cell], header: str) -> str:
    """How many of each operator are below the bar, then the worst cells."""
    by_op = {op: [cell for cell in cells if cell.op == op] for op in dict.fromkeys(cell.op for cell in cells)}
    heads = "".join(f" {title}: below {BAR} | least | median |" for title in TEMPERATURES)
    lines = [header, "", f"| operator | cells |{heads}", "|---|---|" + "---|---|---|" * len(TEMPERATURES)]
    lines += [_summary(op, own) for op, own in {**by_op, "all": cells}.items()]
    for title, ratio_of in TEMPERATURES.items():
        heads = f"| the worst, {title} | batch | ours µs, hot | hot | ours µs, cold | cold |"
        lines += ["", heads, "|" + "---|" * 6]
        lines += [
            f"| {cell.op} {cell.shape} | {cell.batch} | {cell.ours_us:.0f} | {cell.ratio:.2f} | "
            f"{cell.cold_us:.0f} | {cell.cold_ratio:.2f} |"
            for cell in worst(cells, ratio_of)
        ]
    return "\n".join(lines) + "\n"


def _summary(op: str, cells: list[Cell]) -> str:
    text = f"| {op} | {len(cells)} |"
    for ratio_of in TEMPERATURES.values():
        ratios = sorted(map(ratio_of, cells))
        below = sum(ratio < BAR for ratio in ratios)
        text += f" {below} | {ratios[0]:.2f} | {ratios[len(ratios) // 2]:.2f} |"
    return text


def worst(cells: list[Cell], ratio_of: RatioOf) -> list[Cell]:
    return sorted(cells, key=ratio_of)[:WORST]


def write(file: Path, cells: list[Cell], header: str) -> None:
    """The tables, and every cell in the file beside it."""
    with replacing(file.with_suffix(".csv")) as temporary, temporary.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.DictWriter(opened, [field.name for field in fields(Cell)])
        writer.writeheader()
        writer.writerows(asdict(cell) for cell in cells)
    write_text(file, markdown(cells, header))


def kept(file: Path, models: int) -> list[Cell]:
    """The cells of an interrupted run; none if there are none, or only hot ones."""
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
            float(row["cold_us"]),
            float(row["cold_ratio"]),
        )
        for row in rows
        if "cold_ratio" in row
    ]
    return [cell for cell in cells if cell.models == models]
