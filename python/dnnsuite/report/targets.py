# SPDX-License-Identifier: MIT
"""Targets that results are judged against: published figures of three GPUs, or a machine of the user's own."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from .._files import whole_lines, write_text
from ..errors import InvalidArgument, did_you_mean, reason
from ..results.intervals import mean
from ..results.pool import UNKNOWN
from ._entries import ReportEntry, by_job, finished

# Items per second, in the units of mila-iqia/training's report of November 2019: V100, MI50, RTX.
_PUBLISHED = {
    "atari": (6.61, 1.24, 5.41),
    "cart": (2000.0, 2000.0, 2000.0),
    "convnet": (213.59, 143.17, 178.76),
    "convnet_distributed": (339.78, 225.99, 276.10),
    "convnet_distributed_fp16": (393.81, 315.81, 330.41),
    "convnet_fp16": (419.96, 188.53, 262.56),
    "dcgan": (238.49, 192.10, 115.52),
    "dcgan_all": (154.86, 261.60, 139.29),
    "fast_style": (253.02, 179.43, 156.75),
    "loader": (1200.0, 1200.0, 1200.0),
    "recom": (18691.81, 18683.0, 20650.19),
    "reso": (294.39, 152.0, 138.34),
    "ssd": (36.43, 58.58, 59.96),
    "toy_lstm": (1.03, 0.48, 2.65),
    "toy_reg": (308503.37, 147298.73, 368820.18),
    "translator": (225.11, 86.26, 223.47),
    "vae": (6843.90, 4717.01, 7972.69),
    "wlm": (1621.97, 705.43, 1440.87),
    "wlmfp16": (5522.45, 1282.66, 3793.37),
}
JOBS = tuple(_PUBLISHED)
MODELS = ("V100", "MI50", "RTX")
# Where mila-iqia/training's last version (December 2019) scores against other rates than it reported before.
_SCORED = {
    "V100": {
        "atari": 6.0, "toy_reg": 300000.0, "toy_lstm": 2.0, "vae": 7500.0, "reso": 280.0, "translator": 225.0,
        "wlm": 1600.0, "wlmfp16": 5000.0, "ssd": 70.0, "fast_style": 250.0, "dcgan": 250.0, "convnet": 215.0,
        "convnet_fp16": 415.0, "recom": 20000.0,
    },
    "MI50": {},
    "RTX": {
        "atari": 5.0, "toy_reg": 300000.0, "toy_lstm": 1.5, "vae": 7500.0, "reso": 150.0, "translator": 225.0,
        "wlm": 1400.0, "wlmfp16": 3750.0, "ssd": 50.0, "fast_style": 150.0, "dcgan": 150.0, "convnet": 175.0,
        "convnet_fp16": 325.0, "recom": 20000.0,
    },
}  # fmt: skip
# The timed loop of these jobs of the original has its loader in it.
_WITH_LOADER = frozenset({
    "vae", "loader", "reso", "ssd", "fast_style", "dcgan", "convnet", "convnet_fp16", "convnet_distributed",
    "convnet_distributed_fp16", "dcgan_all",
})  # fmt: skip

# What a rate that is made a target was measured with: another rate must be, too, to be compared with it.
_CONDITIONS = ("device", "precision", "preset", "settings", "batch size", "copies", "batches from", "data")
_COLUMNS = ("bench", "target", "perf_target", "sd_target", *_CONDITIONS)


@dataclass(frozen=True)
class Target:
    """A rate that one job should reach, in the seed's unit, and how far from it still passes.

    `perf` is the least rate / target; `sd` the largest standard deviation / mean. `published` is True for a rate of the
    original suite, measured with its jobs' own settings. `conditions` are those of the measurement, by name; missing
    ones are unknown.
    """

    rate: float
    perf: float
    sd: float
    published: bool = False
    conditions: Mapping[str, str] = field(default_factory=dict)

    def reasons(self, entry: ReportEntry) -> list[str]:
        """Differences between the entry and the target, as words; with one, the two must not be compared."""
        found = []
        if entry.conditions.get("skipped steps") == "many":
            found.append("many steps were skipped for the loss scale: run it in bf16 or fp32")
        if self.published:
            found += _not_as_published(entry)
        for name, wanted in self.conditions.items():
            has = entry.seed_feed if name == "batches from" else entry.conditions.get(name, "")
            if has not in ("", UNKNOWN, wanted):
                found.append(f"{name} {has}, not {wanted}")
        return found


def _not_as_published(entry: ReportEntry) -> list[str]:
    """Conditions other than the original's."""
    preset, settings = (entry.conditions.get(name, "") for name in ("preset", "settings"))
    if entry.conditions.get("data", "").startswith("fake: "):
        return ["its data were made by `dnnsuite data prepare --fake`: run it with the real ones"]
    if preset in ("smoke", "quick"):
        return [f"preset {preset} is small and short: run it with --preset default"]
    if settings not in ("", UNKNOWN, "the job's own"):
        return [f"settings that are not the original's ({settings}): run it with its own"]
    return []


def _usual(job: str, rate: float) -> Target:
    """Return a target with the original's tolerances."""
    if job == "scaling":
        return Target(rate, perf=0.85, sd=0.02)
    return Target(rate, perf=0.5, sd=0.10 if job == "loader" else 0.05)


def load(model: str, last: bool = False) -> dict[str, Target]:
    """Return the targets of a published GPU `model` (V100, MI50, RTX), or of a CSV file as :func:`save` writes it.

    A file needs the columns bench and target; perf_target and sd_target are 0.5 and 0.05 where it has none.

    Args:
        last: those of the original's last version, for its score; else those of its README's table.

    Raises:
        InvalidArgument: neither such a model nor such a file; a bad value is named with its line.
    """
    if model in MODELS:
        column = MODELS.index(model)
        rates = {job: rates[column] for job, rates in _PUBLISHED.items()} | {"scaling": 1.0}
        rates |= _SCORED[model] if last else {}
        feeds = {job: {"batches from": "loader"} if job in _WITH_LOADER else {} for job in rates}
        return {job: replace(_usual(job, rate), published=True, conditions=feeds[job]) for job, rate in rates.items()}
    path = Path(model)
    if not path.is_file():
        near = did_you_mean(model, MODELS)
        raise InvalidArgument(f"target {model!r} is neither one of {', '.join(MODELS)} nor a CSV file{near}")
    found = {}
    for line, row in _rows(path, ("bench", "target")):
        usual = _usual(row["bench"], 0.0)
        found[row["bench"]] = Target(
            _number(path, line, row, "target"),
            _number(path, line, row, "perf_target", usual.perf),
            _number(path, line, row, "sd_target", usual.sd),
            conditions={name: row[name] for name in _CONDITIONS if row.get(name)},
        )
    return found


def uncompared(entries: Iterable[ReportEntry], targets: Mapping[str, Target]) -> dict[str, list[str]]:
    """Rows of a report whose rate must not be compared with its target, and every reason why."""
    found: dict[str, list[str]] = {}
    for row, of_row in by_job(finished(entries)).items():
        target = targets.get(of_row[0].bench)
        reasons = [reason for entry in of_row for reason in (target.reasons(entry) if target else ())]
        if reasons:
            found[row] = list(dict.fromkeys(reasons))
    return found


def save(path: Path, entries: Iterable[ReportEntry]) -> dict[str, Target]:
    """Make the machine that gave `entries` the target: each job's mean rate, in the seed's unit. Returns the targets.

    Raises:
        InvalidArgument: nothing was measured.
    """
    made = {}
    for job, of_job in by_job(finished(entries)).items():
        target = _usual(job, mean(entry.seed_rate for entry in of_job))
        known = {**of_job[0].conditions, "batches from": of_job[0].seed_feed}
        made[job] = replace(target, conditions={name: known[name] for name in _CONDITIONS if known.get(name)})
    if not made:
        raise InvalidArgument(f"{path}: there is nothing measured to make a target of")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows(
        (job, repr(t.rate), t.perf, t.sd, *(t.conditions.get(name, "") for name in _CONDITIONS))
        for job, t in made.items()
    )
    write_text(path, text.getvalue())
    return made


def _rows(path: Path, needed: tuple[str, ...]) -> list[tuple[int, Mapping[str, str]]]:
    try:
        text = whole_lines(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{path}: {reason(error)}") from error
    reader = csv.DictReader(io.StringIO(text))
    try:
        missing = [name for name in needed if name not in (reader.fieldnames or ())]
        if missing:
            raise InvalidArgument(f"{path}: no column {missing[0]!r}; it needs {', '.join(needed)}")
        rows: list[tuple[int, Mapping[str, str]]] = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise InvalidArgument(f"{path}, line {reader.line_num + 1}: {error}") from error
    lines: dict[str, int] = {}
    for line, row in rows:
        if (first := lines.setdefault(row["bench"], line)) != line:
            raise InvalidArgument(
                f"{path}, line {line}: {row['bench']} is already in line {first}; there may be one row per job"
            )
    return rows


def _number(path: Path, line: int, row: Mapping[str, str], name: str, usual: float | None = None) -> float:
    text = row.get(name) or ""
    if not text and usual is not None:
        return usual
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise InvalidArgument(f"{path}, line {line}: {name} {text!r} of {row['bench']} must be a positive number")
    return value
