# SPDX-License-Identifier: MIT
"""Run directories as one tidy table, and what the table says. Reads only what runs wrote."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ._files import TEMPORARY, replacing
from ._runs import rates
from ._runs.reading import read_run
from .errors import Error

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BASELINE", "COLUMNS", "load", "save_csv", "steps", "summarize", "wide"]

COLUMNS = (
    "job", "device", "mode", "precision", "B", "repeat", "replica", "metric", "value", "unit", "low", "high",
    "status", "failure", "run",
)  # fmt: skip

# What throughput is normalised by: one plain model alone on the device, in single precision.
BASELINE = ("serial", "fp32", 1)

_MODES = ("serial", "concurrent", "mps", "mig", "hfta")
_HFTA_FILE = re.compile(
    r"^(?:(?P<outdir>.*)/)?(?P<device>cpu|cuda|xla)/(?P<model>[^/]+)/(?P<precision>fp32|amp|bf16)"
    rf"/(?P<mode>{'|'.join(_MODES)})(?:/B(?P<B>\d+))?(?:/idx(?P<replica>\d+))?/timing\.csv$"
)


def load(directory: str | Path) -> pd.DataFrame:
    """All runs below a directory: one row per (run, replica, metric), columns `COLUMNS`.

    Args:
        directory: a workflow's output directory, its `runs`, or a tree of `timing.csv` files as HFTA's
            workflow leaves them (`<device>/<device model>/<precision>/<mode>/B<n>/[idx<i>/]timing.csv`,
            possibly several below `run0`, `run1`, …).

    `replica` is missing where a row speaks of the whole run; `low` and `high` bound a 95 % interval where one
    is known. A failed run has one row, without a value.

    Raises:
        Error: there are no runs, or a file is missing or damaged; the message names it.
    """
    import pandas as pd

    root = Path(directory)
    if not root.is_dir():
        raise Error(f"{root}: no such directory")
    folders = [folder for folder in (root / "runs", root) if folder.is_dir()]
    runs = next((found for folder in folders if (found := _run_directories(folder))), [])
    rows = [row for run in runs for row in _rows_of_run(run)] if runs else list(_rows_of_hfta(root))
    if not rows:
        raise Error(f"{root}: no finished runs in it")
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    numbers = dict.fromkeys(("value", "low", "high"), "float64")
    return table.astype({**numbers, "B": "int64", "repeat": "int64", "replica": "Int64"})


def steps(run: str | Path) -> pd.DataFrame:
    """The raw samples of one run directory: columns replica, i, epoch, t_start_ns, t_stop_ns, items.

    Raises:
        Error: there are none, or a file is damaged; the message names it.
    """
    import pandas as pd

    files = sorted(Path(run).glob("samples.csv")) or sorted(
        Path(run).glob("idx*/samples.csv"), key=lambda path: int(path.parent.name.removeprefix("idx"))
    )
    if not files:
        raise Error(f"{run}: no samples.csv in it")
    tables = [_read_csv(file).assign(replica=i) for i, file in enumerate(files)]
    return pd.concat(tables, ignore_index=True)[["replica", "i", "epoch", "t_start_ns", "t_stop_ns", "items"]]


def _run_directories(folder: Path) -> list[Path]:
    """Directories named as runs are; one of them without its run.json is an error then, not overlooked."""
    return sorted(
        path for path in folder.iterdir()
        if path.is_dir() and not path.name.startswith(TEMPORARY) and re.search(r"-B\d+-\w+-r\d+$", path.name)
    )  # fmt: skip


def _rows_of_run(path: Path) -> Iterator[dict[str, Any]]:
    run = read_run(path / "run.json")
    common = {name: getattr(run, name) for name in ("job", "mode", "precision", "B", "repeat")}
    common |= {
        "device": run.device.type,
        "status": run.verdict.status,
        "failure": run.verdict.failure,
        "run": path.name,
    }
    if not run.ok:
        yield common | {"metric": "throughput", "value": math.nan, "unit": f"{run.unit}/s"}
    for metric in run.metrics:
        named = {
            "metric": metric.name,
            "value": metric.value,
            "unit": metric.unit,
            "low": metric.low,
            "high": metric.high,
        }
        yield common | named | {"replica": metric.replica}


def _rows_of_hfta(root: Path) -> Iterator[dict[str, Any]]:
    """Epoch-wise timing of HFTA's own workflow: first epoch dropped, rates over the common interval."""
    groups: dict[tuple[str, ...], list[Path]] = {}
    for path in sorted(root.rglob("timing.csv")):
        if found := _HFTA_FILE.match(path.relative_to(root).as_posix()):
            key = (
                found["outdir"] or "",
                found["device"],
                found["precision"],
                found["mode"],
                found["B"] or "1",
            )
            groups.setdefault(key, []).append(path)
    outdirs = sorted({key[0] for key in groups})
    for (outdir, device, precision, mode, B), paths in groups.items():
        replicas = [_epochs_as_steps(path) for path in paths]
        kept = [r.after_epochs(1) if len(r) > 1 else r for r in replicas]
        names = [part for part in (root.resolve() / outdir).parts if not re.fullmatch(r"run\d+", part)]
        yield {
            "job": names[-1], "device": device, "mode": mode, "precision": precision, "B": int(B),
            "repeat": outdirs.index(outdir), "metric": "throughput", "value": rates.rate(kept),
            "unit": "samples/s", "status": "ok", "run": paths[0].parent.relative_to(root).as_posix(),
        }  # fmt: skip


def _epochs_as_steps(path: Path) -> rates.Steps:
    table = _read_csv(path)
    try:
        start, stop = (
            (table[name].to_numpy() * 1e9).astype(np.int64) for name in ("epoch_start", "epoch_stop")
        )
        return rates.Steps(
            start, stop, table["num_samples"].to_numpy(np.int64), table["epoch"].to_numpy(np.int64)
        )
    except KeyError as error:
        raise Error(f"{path}: no column {error}") from error


def _read_csv(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_csv(path)
    except (OSError, ValueError) as error:  # pandas' parser errors are ValueErrors
        raise Error(f"{path}: {error}") from error


def summarize(table: pd.DataFrame) -> pd.DataFrame:
    """Throughput by mode, precision and B, and normalised by :data:`BASELINE`. Pure.

    Columns: mode, precision, B, rate, rate_low, rate_high, unit, normalized, low, high, runs, failed,
        failure.

    Rates are means over the runs. Intervals are 95 %: over the repeats with Student's t where there are
    several — for the normalised value over the ratios of runs of the same repeat, which share the machine's
    state —, else from within the single run (batch means). NaN where nothing is known: no interval, no
    finished run, no baseline.
    """
    import pandas as pd

    whole = table[(table["metric"] == "throughput") & table["replica"].isna()]
    good = whole[whole["status"] == "ok"].dropna(subset=["value"])
    grouped = dict(iter(good.groupby(["mode", "precision", "B"])))
    baseline = grouped.get(BASELINE)
    rows = []
    for (mode, precision, B), every in whole.groupby(["mode", "precision", "B"]):
        runs = grouped.get((mode, precision, B), good.iloc[:0])
        row: dict[str, Any] = {"mode": mode, "precision": precision, "B": B, "unit": every["unit"].iloc[0]}
        row |= dict(zip(("rate", "rate_low", "rate_high"), _rate(runs), strict=True))
        row |= dict(zip(("normalized", "low", "high"), _ratio(runs, baseline), strict=True))
        failures = every.loc[every["status"] != "ok", "failure"]
        row |= {
            "runs": len(runs),
            "failed": len(failures),
            "failure": failures.iloc[-1] if len(failures) else "",
        }
        rows.append(row)
    rows.sort(
        key=lambda row: (_MODES.index(row["mode"]), row["precision"] != "fp32", row["precision"], row["B"])
    )
    return pd.DataFrame(rows)


def _order(mode: str, precision: str) -> tuple[int, bool, str]:
    """Sorts modes as the table of modes has them, and fp32 first."""
    return (_MODES.index(mode) if mode in _MODES else len(_MODES), precision != "fp32", precision)


def _rate(runs: pd.DataFrame) -> tuple[float, float, float]:
    """(mean, low, high) of the runs' rates."""
    values = runs["value"].to_numpy()
    if len(values) == 0:
        return math.nan, math.nan, math.nan
    if len(values) == 1:
        return float(values[0]), float(runs["low"].iloc[0]), float(runs["high"].iloc[0])
    _, low, high = _mean_interval(np.log(values))  # of the logarithms: a rate is never negative
    return float(values.mean()), math.exp(low), math.exp(high)


def _ratio(runs: pd.DataFrame, baseline: pd.DataFrame | None) -> tuple[float, float, float]:
    """(ratio, low, high) of the runs' rates to the baseline's."""
    nothing = (math.nan, math.nan, math.nan)
    if baseline is None or len(runs) == 0:
        return nothing
    if runs is baseline:  # the baseline against its own mean: what it fluctuates by
        rate, low, high = _rate(runs)
        return 1.0, low / rate, high / rate
    # The last finished run of a repeat, should one have been done again.
    ours, theirs = (t.drop_duplicates("repeat", keep="last").set_index("repeat") for t in (runs, baseline))
    pairs = sorted(set(ours.index) & set(theirs.index))
    if len(pairs) >= 2:
        logs = np.log(ours.loc[pairs, "value"].to_numpy() / theirs.loc[pairs, "value"].to_numpy())
        mean, low, high = _mean_interval(logs)
        return math.exp(mean), math.exp(low), math.exp(high)
    if not pairs:  # no repeat has both: the ratio of means, without an interval
        return float(ours["value"].mean() / theirs["value"].mean()), math.nan, math.nan
    one, other = ours.loc[pairs[0]], theirs.loc[pairs[0]]
    ratio = float(one["value"] / other["value"])
    relative = [(run["high"] - run["low"]) / 2 / run["value"] for run in (one, other)]
    half = math.hypot(*relative)  # of the logarithm, for independent errors; NaN when either is unknown
    return ratio, ratio * math.exp(-half), ratio * math.exp(half)


def _mean_interval(values: np.ndarray) -> tuple[float, float, float]:
    from . import timing

    interval = timing.batch_means(
        values, batches=len(values)
    )  # every value its own batch: the plain t interval
    return interval.mean, interval.low, interval.high


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """Throughput in the shape of HFTA's CSV: index B, columns `{mode}:{precision}:{run}` and `:avg :min
    :max`.

    Unlike there, only Bs that were measured have values; nothing between them is interpolated.
    """
    import pandas as pd

    whole = table[(table["metric"] == "throughput") & table["replica"].isna() & (table["status"] == "ok")]
    columns: dict[str, pd.Series[float]] = {}
    groups = dict(iter(whole.groupby(["mode", "precision"])))
    for (mode, precision), runs in sorted(groups.items(), key=lambda item: _order(*map(str, item[0]))):
        by_run = runs.drop_duplicates(["B", "repeat"], keep="last").pivot(
            index="B", columns="repeat", values="value"
        )
        name = f"{mode}:{precision}"
        columns |= {f"{name}:{repeat}": by_run[repeat] for repeat in by_run.columns}
        columns |= {f"{name}:avg": by_run.mean(axis=1), f"{name}:min": by_run.min(axis=1),
                    f"{name}:max": by_run.max(axis=1)}  # fmt: skip
    frame = pd.DataFrame(columns)
    frame.index.name = "B"
    return frame.sort_index()


def save_csv(table: pd.DataFrame, path: Path, index: bool = False) -> None:
    """Write a table as CSV, whole or not at all."""
    with replacing(path) as temporary:
        table.to_csv(temporary, index=index)
