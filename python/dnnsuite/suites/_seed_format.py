# SPDX-License-Identifier: MIT
"""Output and files of a job of mila-iqia/training (its README of November 2019), to the character."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ._method import Observations

RULE = "-" * 80

# Arguments that may differ between devices whose results are still of the same experiment.
_NOT_PARAMETERS = {
    "gpu", "batch_size", "num-processes", "workers", "cuda", "report", "ngpu", "data", "no_cuda", "dataset_dir",
    "backend", "jr_id", "vcd", "num-steps", "seed",
}  # fmt: skip
_NOT_REPORTED = ("report", "seed")


def header(arguments: Mapping[str, Any]) -> str:
    """Return the arguments, right-aligned, between two lines."""
    return "\n".join([RULE, *(f"{name:>30}: {value}" for name, value in arguments.items()), RULE])


def eta_line(index: int, repeat: int, seen: Observations) -> str:
    """Line after observation `index`: minutes left, and the last loss."""
    kept = seen.seconds[seen.skip :]
    each_s = sum(kept) / len(kept) if kept else seen.seconds[-1]
    left_min = each_s * (repeat - (index + 1)) / 60
    return f"[{index:3d}/{repeat:3d}] | ETA: {left_min:6.2f} min | Batch Loss {seen.losses[-1]:8.4f}"


def unique_id(arguments: Mapping[str, Any]) -> str:
    """Return an id that all devices of an experiment share: of the arguments that matter, `version` among them."""
    digest = hashlib.sha256()
    for name in sorted(set(arguments) - _NOT_PARAMETERS):
        digest.update(name.encode())
        digest.update(str(arguments[name]).encode())
    return digest.hexdigest()


def seed_report(
    name: str,
    arguments: Mapping[str, Any],
    version: str,
    seen: Observations,
    seed_items: float,
    metrics: Mapping[str, float],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the report of one device.

    Args:
        arguments: arguments of the header.
        version: hash of the job's source.
        seed_items: items of a batch, as the original counted them.
        about: `hostname`, `run_id` and, on a GPU, its name as `gpu`.
    """
    identified = {**arguments, "version": version}
    timed = seen.timed
    report = {
        **{key: value for key, value in identified.items() if key not in _NOT_REPORTED},
        **about,
        "name": name,
        "unique_id": unique_id(identified),
        "batch_loss": list(seen.losses),
        "epoch_loss": [],
        "metrics": {metric: [value] for metric, value in metrics.items()},
        "train": timed.train,
        "train_item": timed.train_item(seed_items),
    }
    return report


def report_json(report: Any) -> str:
    """Write JSON as the original does."""
    return json.dumps(report, sort_keys=True, indent=4, separators=(",", ": "))


def unclosed(reports: Sequence[Any]) -> str:
    """Return a device's file as the original's scripts left it: a list that each job adds to and none closes.

    Its last reader takes a list in no other form, and its first one drops the last character before it closes the list.
    """
    return "[" + "".join(f"{report_json(report)},\n" for report in reports)


def summary_line(index: int, of: int, failed: int, copies: int, seconds: float, command: str) -> str:
    """Return a job's line in `summary.txt`."""
    counted = f"[{failed:2d}/{copies:2d}] FAILED" if failed else "[  /  ] PASSED"
    return f"[{index:2d}/{of:2d}]{counted} | {seconds / 60:8.2f} MIN | {command}"


def total_line(seconds: float) -> str:
    """Return the last line of a run of the suite in `summary.txt`."""
    return f"Total Time {seconds:8.2f} s"
