# SPDX-License-Identifier: MIT
"""Runs of HFTA's own workflow: a tree of `timing.csv` files."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .._files import whole_lines
from .._lazy import pandas as pd
from .._runs import rates
from .._runs.record_parts import MODES
from ..errors import Error
from .table import Row, reading

_FOLDER = re.compile(
    r"^(?:(?P<outdir>.*)/)?(?P<device>cpu|cuda|xla)/(?P<model>[^/]+)/(?P<precision>fp32|amp|bf16)"
    rf"/(?P<mode>{'|'.join(MODES)})(?:/B(?P<B>\d+))?(?:/idx(?P<replica>\d+))?$"
)
TIMING_FILE = "timing.csv"


class Place(NamedTuple):
    """The place of a run in a tree; `repeat` is the number of its `outdir` among those of the tree."""

    outdir: str
    device: str
    model: str
    precision: str
    mode: str
    B: int
    repeat: int

    def job(self, root: Path) -> str:
        """Return the workflow: the last folder above the device that is not `run0`, `run1`, …"""
        parts = (root.resolve() / self.outdir).parts
        return [part for part in parts if not re.fullmatch(r"run\d+", part)][-1]

    def plan_id(self, root: Path) -> str:
        """Return an id that tells the tree from others."""
        return hashlib.sha256(f"hfta:{root.resolve()}".encode()).hexdigest()[:32]


def places(root: Path, file: str) -> list[tuple[Place, Path]]:
    """List every file of that name with its run, by path; processes of one run share a place."""
    found = []
    for path in sorted(root.rglob(file)):
        if match := _FOLDER.match(path.parent.relative_to(root).as_posix()):
            found.append((match.groupdict(), path))
    outdirs = sorted({named["outdir"] or "" for named, _ in found})
    return [
        (
            Place(
                named["outdir"] or "", named["device"], named["model"], named["precision"], named["mode"],
                int(named["B"] or 1), outdirs.index(named["outdir"] or ""),
            ),
            path,
        )
        for named, path in found
    ]  # fmt: skip


def rows_of_hfta(root: Path) -> tuple[list[Row], list[str]]:
    """Return (rows, a sentence for each damaged run): first epoch dropped, rates over the common interval of processes.

    Files lie in `<device>/<device model>/<precision>/<mode>/B<n>/[idx<i>/]timing.csv`, possibly below `run0`, `run1`, …
    """
    groups: dict[Place, list[Path]] = {}
    for place, path in places(root, TIMING_FILE):
        groups.setdefault(place, []).append(path)
    rows, problems = [], []
    for place, paths in groups.items():
        try:
            rows.append(_row(root, place, paths))
        except Error as error:
            problems.append(f"skipped: {error}")
    return rows, problems


def _row(root: Path, place: Place, paths: list[Path]) -> Row:
    replicas = [epochs_as_steps(path) for path in paths]
    kept = [steps.after_epochs(1) if len(steps) > 1 else steps for steps in replicas]
    job, plan = place.job(root), place.plan_id(root)
    run = paths[0].parent.relative_to(root).as_posix()
    return Row(
        job=job, device=place.device, mode=place.mode, precision=place.precision, B=place.B,
        repeat=place.repeat, value=rates.rate(kept), unit="samples/s", item="samples", run=run, kind="hfta",
        plan=job, plan_id=plan, plan_path=str(root), run_id=f"{plan}/{run}", device_name=place.model,
        path=str(paths[0].parent), processes=len(paths),
    )  # fmt: skip


def epochs_as_steps(path: Path) -> rates.Steps:
    """Return the epochs of a `timing.csv`, times in ns since 1970.

    Raises:
        Error: it is missing or damaged; the message names it.
    """
    with reading(path):
        table = pd.read_csv(whole_lines(path))
        starts, stops = (
            (table[name].to_numpy(np.float64) * 1e9).astype(np.int64) for name in ("epoch_start", "epoch_stop")
        )
        items = table["num_samples"].to_numpy(np.int64)
        return rates.Steps(starts, stops, items, table["epoch"].to_numpy(np.int64))
