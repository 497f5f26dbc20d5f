# SPDX-License-Identifier: MIT
"""The record of one run: `run.json` from what the worker wrote, how its process ended, and what was asked of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._files import OutputError, read_json, read_tail
from .._runs.failures import DISK_EXIT, classify_exit
from ..pin import Outcome
from ._copies import SPEC

__all__ = ["FINAL_FAILURES", "SCHEMA", "about_run", "missing_run", "run_name"]

SCHEMA = 1
# What says something about the thing measured: it would be the same again. --resume tries the others again.
FINAL_FAILURES = ("oom", "nan")

_UNKNOWN: Mapping[str, Any] = {
    "items_per_batch": None, "rate_per_s": None, "rate_interval_per_s": None,
    "dropped": None, "kept": None, "window_s": None, "steady": None, "data_wait_share": None, "contention": None,
    "losses": None, "metrics": {}, "flags": [], "provenance": None, "environment": {}, "hashes": {}, "setup_s": None,
}  # fmt: skip


def run_name(key: str, repeat: int, slot: int) -> str:
    """The name of a run's directory."""
    return f"{key}-r{repeat}-d{slot}"


def about_run(
    directory: Path, asked: Mapping[str, Any], outcome: Outcome, pinning: Mapping[str, Any]
) -> dict[str, Any]:
    """`run.json` of a copy that has ended; its worker's own files are taken in and removed.

    Raises:
        OutputError: it could not write its results.
    """
    stderr = read_tail(directory / "stderr.txt")
    if outcome.returncode == DISK_EXIT:
        lines = stderr.strip().splitlines()  # none, when even that found no room
        raise OutputError(lines[-1] if lines else f"cannot write {directory}: no space left")
    result = _result(directory / "result.json")
    told = _verdict(result, outcome, stderr)
    for name in (SPEC, "result.json"):
        (directory / name).unlink(missing_ok=True)
    if told["status"] != "ok":  # what did not end well has no report
        (directory / "report.json").unlink(missing_ok=True)
    flags = list(result.get("flags", []))
    if outcome.survivors:
        flags.append("left processes behind")
    return {
        "schema": SCHEMA, **asked, **told, **_UNKNOWN, **result, **told, "flags": flags,
        "isolation": {**pinning, **outcome.to_dict()}, "elapsed_s": outcome.elapsed_s,
    }  # fmt: skip


def missing_run(asked: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """`run.json` of one that cannot run here at all."""
    told = {"status": "failed", "failure": "unavailable", "message": reason}
    return {"schema": SCHEMA, **asked, **told, **_UNKNOWN, "isolation": None, "elapsed_s": 0.0}


def _result(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = read_json(path) if path.is_file() else {}
    return result


def _verdict(result: Mapping[str, Any], outcome: Outcome, stderr: str) -> dict[str, Any]:
    """Status, failure and message. What ended the process is stronger than what it says of itself."""
    if outcome.timed_out:
        return _failed("timeout", f"not finished after {outcome.elapsed_s:.0f} s")
    if outcome.oom_killed:
        where = {"group": "its share", "outside": "the machine"}.get(
            outcome.oom_scope, "its share or the machine"
        )
        return _failed("oom", f"memory ran out in {where}, and a process of it was killed")
    if result:
        return {name: result[name] for name in ("status", "failure", "message")}
    if outcome.returncode == 0:
        return _failed("crash", "the worker ended early, with status 0 and no result")
    return _failed(*classify_exit(outcome.returncode, stderr, kernel_killed=False))


def _failed(failure: str, message: str) -> dict[str, Any]:
    return {"status": "failed", "failure": failure, "message": message}
