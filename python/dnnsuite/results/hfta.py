# SPDX-License-Identifier: MIT
"""Runs of HFTA's own workflow: a tree of `timing.csv` files."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .._runs import rates
from .._runs.modes import MODES
from ..errors import Error
from .table import Row

__all__ = ["rows_of_hfta"]

_FILE = re.compile(
    r"^(?:(?P<outdir>.*)/)?(?P<device>cpu|cuda|xla)/(?P<model>[^/]+)/(?P<precision>fp32|amp|bf16)"
    rf"/(?P<mode>{'|'.join(MODES)})(?:/B(?P<B>\d+))?(?:/idx(?P<replica>\d+))?/timing\.csv$"
)


class _Group(NamedTuple):
    """The files of one run: one for each of its processes."""

    outdir: str
    device: str
    model: str
    precision: str
    mode: str
    B: int


def rows_of_hfta(root: Path) -> tuple[list[Row], list[str]]:
    """(rows, a sentence for each damaged run): first epoch dropped, rates over the common interval of processes.

    Files lie in `<device>/<device model>/<precision>/<mode>/B<n>/[idx<i>/]timing.csv`, possibly below `run0`, `run1`, …
    """
    groups: dict[_Group, list[Path]] = {}
    for path in sorted(root.rglob("timing.csv")):
        if found := _FILE.match(path.relative_to(root).as_posix()):
            named = found.groupdict()
            key = _Group(
                named["outdir"] or "",
                named["device"],
                named["model"],
                named["precision"],
                named["mode"],
                int(named["B"] or 1),
            )
            groups.setdefault(key, []).append(path)
    outdirs = sorted({key.outdir for key in groups})
    rows, problems = [], []
    for key, paths in groups.items():
        try:
            rows.append(_row(root, key, paths, outdirs.index(key.outdir)))
        except Error as error:
            problems.append(f"skipped: {error}")
    return rows, problems


def _row(root: Path, key: _Group, paths: list[Path], repeat: int) -> Row:
    replicas = [_epochs_as_steps(path) for path in paths]
    kept = [steps.after_epochs(1) if len(steps) > 1 else steps for steps in replicas]
    names = [part for part in (root.resolve() / key.outdir).parts if not re.fullmatch(r"run\d+", part)]
    plan = hashlib.sha256(f"hfta:{root.resolve()}".encode()).hexdigest()[:32]
    run = paths[0].parent.relative_to(root).as_posix()
    return Row(
        job=names[-1],
        device=key.device,
        mode=key.mode,
        precision=key.precision,
        B=key.B,
        repeat=repeat,
        value=rates.rate(kept),
        unit="samples/s",
        item="samples",
        run=run,
        kind="hfta",
        plan=names[-1],
        plan_id=plan,
        plan_path=str(root),
        run_id=f"{plan}/{run}",
        device_name=key.model,
        path=str(paths[0].parent),
        processes=len(paths),
    )


def _epochs_as_steps(path: Path) -> rates.Steps:
    import pandas as pd

    try:
        table = pd.read_csv(path)
        starts, stops = (
            (table[name].to_numpy(np.float64) * 1e9).astype(np.int64)
            for name in ("epoch_start", "epoch_stop")
        )
        items = table["num_samples"].to_numpy(np.int64)
        return rates.Steps(starts, stops, items, table["epoch"].to_numpy(np.int64))
    except KeyError as error:
        raise Error(f"{path}: no column {error}") from error
    except (OSError, ValueError) as error:  # pandas' parser errors are ValueErrors
        raise Error(f"{path}: {error}") from error
