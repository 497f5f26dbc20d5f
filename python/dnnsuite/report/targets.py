# SPDX-License-Identifier: MIT
"""Targets that results are judged against: published figures of three GPUs, or a machine of the user's own."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .._files import write_text
from ..errors import InvalidArgument
from ..results.intervals import mean
from ._entries import ReportEntry, by_job, finished

__all__ = ["MODELS", "WEIGHTS", "Target", "load", "save", "weights"]

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
MODELS = ("V100", "MI50", "RTX")

# The parts of a weighted score: weight, and the rate that earns it (same source).
WEIGHTS = {
    "atari": (2.88, 26.5405955792167),
    "cart": (2.67, 7302.07868564706),
    "convnet": (2.79, 854.372140032470),
    "convnet_distributed": (2.97, 679.552350938073),
    "convnet_distributed_fp16": (3.16, 787.612513885864),
    "convnet_fp16": (2.97, 1679.83933693595),
    "dcgan": (2.79, 953.948799476626),
    "dcgan_all": (2.97, 309.723619627068),
    "fast_style": (2.79, 1012.08893408226),
    "loader": (2.96, 7399.55789895996),
    "recom": (2.81, 74767.2559322286),
    "reso": (2.79, 1177.57382438524),
    "ssd": (2.79, 145.729436411335),
    "toy_lstm": (2.67, 4.10197009223690),
    "toy_reg": (2.67, 1234013.49127685),
    "translator": (2.78, 900.443830123957),
    "vae": (2.79, 27375.6153865499),
    "wlm": (2.78, 6487.87603739007),
    "wlmfp16": (2.96, 22089.7959228754),
}

_COLUMNS = ("bench", "target", "perf_target", "sd_target")
_WEIGHT_COLUMNS = ("bench", "weight", "base")


@dataclass(frozen=True)
class Target:
    """A rate that one job should reach, in the seed's unit, and how far from it still passes.

    `perf` is the least rate / target; `sd` the largest standard deviation / mean.
    """

    rate: float
    perf: float
    sd: float


def _published(job: str, rate: float) -> Target:
    if job == "scaling":
        return Target(rate, perf=0.85, sd=0.02)
    return Target(rate, perf=0.5, sd=0.10 if job == "loader" else 0.05)


def load(model: str) -> dict[str, Target]:
    """The targets of a published GPU `model` (V100, MI50, RTX), or of a CSV file as :func:`save` writes it.

    A file needs the columns bench and target; perf_target and sd_target are 0.5 and 0.05 where it has none.

    Raises:
        InvalidArgument: neither such a model nor such a file; a bad value is named with its line.
    """
    if model in MODELS:
        column = MODELS.index(model)
        rates = {job: rates[column] for job, rates in _PUBLISHED.items()} | {"scaling": 1.0}
        return {job: _published(job, rate) for job, rate in rates.items()}
    path = Path(model)
    if not path.is_file():
        raise InvalidArgument(f"target {model!r} is neither one of {', '.join(MODELS)} nor a CSV file")
    found = {}
    for line, row in _rows(path, ("bench", "target")):
        usual = _published(row["bench"], 0.0)
        found[row["bench"]] = Target(
            _number(path, line, row, "target"),
            _number(path, line, row, "perf_target", usual.perf),
            _number(path, line, row, "sd_target", usual.sd),
        )
    return found


def save(path: Path, entries: Iterable[ReportEntry]) -> dict[str, Target]:
    """Make the machine that gave `entries` the target: each job's mean rate, in the seed's unit. Returns the targets.

    Raises:
        InvalidArgument: nothing was measured.
    """
    made = {
        job: _published(job, mean(entry.seed_rate for entry in of_job))
        for job, of_job in by_job(finished(entries)).items()
    }
    if not made:
        raise InvalidArgument(f"{path}: there is nothing measured to make a target of")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows((job, repr(t.rate), t.perf, t.sd) for job, t in made.items())
    write_text(path, text.getvalue())
    return made


def weights(path: Path | None = None) -> dict[str, tuple[float, float]]:
    """Weight and base rate of each job: the published ones, or those of a CSV file with bench, weight, base."""
    if path is None:
        return dict(WEIGHTS)
    return {
        row["bench"]: (_number(path, line, row, "weight"), _number(path, line, row, "base"))
        for line, row in _rows(path, _WEIGHT_COLUMNS)
    }


def _rows(path: Path, needed: tuple[str, ...]) -> list[tuple[int, Mapping[str, str]]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path}: {error}") from error
    reader = csv.DictReader(io.StringIO(text))
    missing = [name for name in needed if name not in (reader.fieldnames or ())]
    if missing:
        raise InvalidArgument(f"{path}: no column {missing[0]!r}; it needs {', '.join(needed)}")
    return [(reader.line_num, row) for row in reader]


def _number(path: Path, line: int, row: Mapping[str, str], name: str, usual: float | None = None) -> float:
    text = row.get(name) or ""
    if not text and usual is not None:
        return usual
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise InvalidArgument(
            f"{path}, line {line}: {name} {text!r} of {row['bench']} must be a positive number"
        )
    return value
