# SPDX-License-Identifier: MIT
"""Results of `fused.py`: rows as CSV, the speed of each variant over serial, as Markdown and as a figure.

A row is one round of one variant; a variant that could not run has one row, without seconds, whose note says why.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from setting import Setting

from dnnsuite import plots
from dnnsuite._files import replacing, write_text
from dnnsuite.errors import Error
from dnnsuite.timing import bootstrap_mean

BASE, OWN, ROOF = "serial", "dnnsuite", "roof"
BEGIN, END = "<!-- fused -->", "<!-- /fused -->"
_INCHES = 0.16  # of a bar


class Group(NamedTuple):
    """Key of one line of a table; each setting has a table of its own."""

    setting: Setting
    B: int
    workload: str


@dataclass(frozen=True)
class Row:
    workload: str
    B: int
    threads: int
    device: str
    precision: str
    variant: str
    round: int | None
    seconds_per_model_step: float | None
    note: str
    machine: str

    @property
    def group(self) -> Group:
        return Group(Setting(self.threads, self.device, self.precision), self.B, self.workload)


@dataclass(frozen=True)
class Speed:
    """Speed over serial: the geometric mean over rounds, with the 95 % interval (NaN from one round).

    `median_s` is the median of seconds of a step of one model.
    """

    median_s: float
    ratio: float
    low: float
    high: float


def speed(base_s: list[float], own_s: list[float]) -> Speed:
    """Rounds are paired: what disturbed one hit both, so their ratios are resampled, not the times (BCa bootstrap)."""
    logs = [[math.log(base / own)] for base, own in zip(base_s, own_s, strict=True)]
    found = bootstrap_mean(logs)
    return Speed(statistics.median(own_s), math.exp(found.value), math.exp(found.low), math.exp(found.high))


def rows_of(group: Group, seconds: dict[str, list[float]], notes: dict[str, str], machine: str) -> list[Row]:
    def row(variant: str, number: int | None, value: float | None, note: str) -> Row:
        where = group.setting
        return Row(
            group.workload, group.B, where.threads, where.device, where.precision, variant, number, value, note, machine
        )  # fmt: skip

    measured = [
        row(variant, number, value, "") for variant, values in seconds.items() for number, value in enumerate(values)
    ]
    return measured + [row(variant, None, None, note) for variant, note in notes.items()]


def write_csv(path: Path, rows: Iterable[Row]) -> None:
    """Whole or not at all."""
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def read_csv(path: Path) -> list[Row]:
    """The rows of a file that `write_csv` made; none where there is no file. One without device and precision is of a
    CPU in fp32.

    Raises Error for a file that is not one.
    """
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        try:
            return [_row(values) for values in csv.DictReader(file)]
        except (KeyError, TypeError, ValueError) as error:
            raise Error(f"{path}: not a table of fused.py ({error!r}); move it away") from error


def _row(values: dict[str, str]) -> Row:
    number, seconds = values["round"], values["seconds_per_model_step"]
    return Row(
        values["workload"],
        int(values["B"]),
        int(values["threads"]),
        values.get("device", "cpu"),
        values.get("precision", "fp32"),
        values["variant"],
        int(number) if number else None,
        float(seconds) if seconds else None,
        values["note"],
        values["machine"],
    )


def speeds(rows: Iterable[Row]) -> dict[Group, dict[str, Speed]]:
    """Speed of every variant that was measured beside serial."""
    times: dict[Group, dict[str, list[float]]] = {}
    for row in rows:
        if row.seconds_per_model_step is not None:
            times.setdefault(row.group, {}).setdefault(row.variant, []).append(row.seconds_per_model_step)
    return {
        group: {variant: speed(found[BASE], values) for variant, values in found.items()}
        for group, found in times.items()
        if BASE in found
    }


def share(own_s: list[float], roof_s: list[float]) -> float:
    """Share of the roof that a variant reaches, by the medians."""
    return statistics.median(roof_s) / statistics.median(own_s)


def _variants(groups: Iterable[Iterable[str]]) -> list[str]:
    """Those that are compared with serial, each once."""
    found = dict.fromkeys(variant for group in groups for variant in group)
    return [variant for variant in found if variant not in (BASE, ROOF)]


def _cell(speed: Speed | None, best: bool) -> str:
    if speed is None:
        return "–"
    text = f"**{speed.ratio:.2f}**" if best else f"{speed.ratio:.2f}"
    return text if math.isnan(speed.low) else f"{text} [{speed.low:.2f}, {speed.high:.2f}]"


def _share(group: dict[str, Speed]) -> str:
    if ROOF not in group or OWN not in group:
        return "–"
    return f"{share([group[OWN].median_s], [group[ROOF].median_s]):.2f}"


def _title(setting: Setting) -> str:
    half = "" if setting.precision == "fp32" else f"{setting.precision} by autocast, "
    if setting.on_gpu:
        return f"{half}{setting.device}, wall time"
    if setting.threads == 1:
        return f"{half}one thread, CPU time"
    return f"{half}{setting.threads} threads, wall time"


def markdown(rows: list[Row]) -> str:
    """A table for each setting: workloads by variants, times as fast as serial, the best in bold. This package's column
    is the first, which a narrow window shows."""
    found = speeds(rows)
    parts = []
    for setting in dict.fromkeys(group.setting for group in found):
        groups = {key[1:]: value for key, value in found.items() if key.setting == setting}
        variants = sorted(_variants(groups.values()), key=lambda name: name != OWN)
        with_roof = any(ROOF in group for group in groups.values())
        heads = ["| workload", *variants, *(["of the roof"] * with_roof), "B", "serial, ms"]
        lines = [" | ".join(heads) + " |", "|" + "---|" * len(heads)]
        for (B, workload), group in groups.items():
            best = max((name for name in group if name != ROOF), key=lambda name: group[name].ratio)
            cells = [_cell(group.get(variant), variant == best) for variant in variants]
            cells += [_share(group)] * with_roof
            lines.append(" | ".join([f"| {workload}", *cells, str(B), f"{1e3 * group[BASE].median_s:.3g}"]) + " |")
        parts.append(f"Times as fast as `serial` [95 %], {_title(setting)}:\n\n" + "\n".join(lines))
    if not parts:
        return "Nothing was measured.\n"
    machines = dict.fromkeys(row.machine for row in rows)
    footer = [*_notes(rows), *(f"{text}." for text in machines)]
    return "\n\n".join([*parts, "\n".join(footer)]) + "\n"


def _notes(rows: Iterable[Row]) -> list[str]:
    """A line for each reason why something could not run."""
    places: dict[str, list[str]] = {}
    for row in rows:
        if row.note:
            places.setdefault(f"`{row.variant}`: {row.note}", []).append(row.workload)
    return [f"– {reason} ({', '.join(dict.fromkeys(names))})  " for reason, names in places.items()]


def put(text: str, path: Path) -> None:
    """Write a table between the markers of a file, which is made if there is none.

    Raises Error for a file that is there and has no markers, and leaves it as it is.
    """
    before, after = _around(path)
    write_text(path, f"{before}{BEGIN}\n{text}{END}{after}")


def check_place(path: Path) -> None:
    """Raises Error for a file into which `put` would put nothing."""
    _around(path)


def _around(path: Path) -> tuple[str, str]:
    """What stands before and after the markers."""
    if not path.exists():
        return "", "\n"
    before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise Error(f"{path} has no place for the table: put {BEGIN} and {END} where it belongs")
    return before, after


def draw(rows: list[Row], path: Path) -> None:
    """Bars of the speed over serial with their intervals: a panel for each setting and B."""
    from matplotlib.figure import Figure

    found = speeds(rows)
    panels = list(dict.fromkeys(key[:2] for key in found))
    if not panels:
        return
    variants = _variants(found.values())
    most = max(sum(key[:2] == panel for key in found) for panel in panels)
    width = max(5.0, _INCHES * most * (len(variants) + 2))
    figure = Figure(figsize=(width, 3.0 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), squeeze=False)[:, 0]
    for ax, panel in zip(axes, panels, strict=True):
        _panel(ax, {key[2]: value for key, value in found.items() if key[:2] == panel}, variants)
        ax.set_title(f"B = {panel[1]}, {_title(panel[0])}", fontsize="medium")
    axes[0].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    plots.save(axes[0], path)


def _panel(ax: Any, groups: dict[str, dict[str, Speed]], variants: list[str]) -> None:
    from matplotlib.ticker import LogLocator

    bar = 0.8 / max(len(variants), 1)
    for place, variant in enumerate(variants):
        here = [(x, group[variant]) for x, group in enumerate(groups.values()) if variant in group]
        ratios = [speed.ratio for _, speed in here]
        known = [(s.low, s.high) if not math.isnan(s.low) else (s.ratio, s.ratio) for _, s in here]
        spread = [
            [max(0.0, r - low) for r, (low, _) in zip(ratios, known, strict=True)],
            [max(0.0, high - r) for r, (_, high) in zip(ratios, known, strict=True)],
        ]
        xs = [x + bar * (place - (len(variants) - 1) / 2) for x, _ in here]
        colour = "black" if variant == OWN else f"C{place}"
        heights = [ratio - 1 for ratio in ratios]
        ax.bar(xs, heights, bar, 1.0, yerr=spread, label=variant, color=colour, error_kw={"ecolor": "0.5"})
    ax.axhline(1.0, color="0.3", linewidth=0.8, linestyle="--")
    ax.set_yscale("log", base=2)
    ax.yaxis.set_major_locator(LogLocator(base=2, subs=(1.0, 1.5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.set_xticks(range(len(groups)), list(groups), rotation=20, ha="right")
    ax.set_ylabel("× serial")
