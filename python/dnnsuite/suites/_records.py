# SPDX-License-Identifier: MIT
"""Records of a suite's runs, from what was asked of a copy, what its worker wrote and how its process ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .._runs.group import WorkerOutcome
from .._runs.record import WITH_LOADER, Metric, RunRecord, Samples, Verdict, data_source
from .._runs.spec import RESULT_FILE, SPEC_FILE

_DETAILS = (
    "items_per_batch", "data_wait_share", "contention", "losses", "provenance", "setup_s", "training",
    "loaded",
    "quality",
)  # fmt: skip
_WINDOW = ("dropped", "kept", "steady", "no_interval")


def run_name(key: str, repeat: int, slot: int) -> str:
    """Return the name of a run's directory."""
    return f"{key}-r{repeat}-d{slot}"


def rate_of(run: RunRecord) -> Metric | None:
    """Return the throughput of a run; None where it did not end well."""
    return next((metric for metric in run.metrics if metric.name == "throughput"), None)


def ended_run(
    directory: Path, asked: RunRecord, outcome: WorkerOutcome, pinning: Mapping[str, Any], monitor: Mapping[str, Any]
) -> RunRecord:
    """Return the record of a copy that has ended; the files between it and its worker are removed.

    Args:
        asked: its record as far as it was known before.
        pinning: the partition's own record.
        monitor: facts on the sampling of the machine.
    """
    for name in (SPEC_FILE, RESULT_FILE):
        (directory / name).unlink(missing_ok=True)
    verdict, result = outcome.verdict, outcome.result
    if not verdict.ok:  # what did not end well has no report
        (directory / "report.json").unlink(missing_ok=True)
    flags = (*asked.disturbances, *result.get("flags", ()))
    if outcome.held.get("survivors"):
        flags = (*flags, "left processes behind")
    run = replace(
        asked,
        verdict=verdict,
        seconds=outcome.seconds,
        disturbances=flags,
        isolation=replace(asked.isolation, level=pinning["level"], details={**pinning, **outcome.held}),
        details={**asked.details, **_details(result), "monitor": monitor},
    )
    return _with_figures(run, result) if verdict.ok else run


def missing_run(asked: RunRecord, reason: str) -> RunRecord:
    """Return the record of a copy that cannot run here at all."""
    isolation = replace(asked.isolation, level="none")
    return replace(
        asked,
        verdict=Verdict.failed("unavailable", reason),
        isolation=isolation,
        details={**asked.details, **_details({}), "monitor": {}},
    )


def _details(result: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: result.get(name) for name in _DETAILS}
    environment = {**result.get("environment", {}), **result.get("process", {})}
    return {
        **found,
        "hashes": result.get("hashes", {}),
        "job_metrics": result.get("metrics", {}),
        "environment": environment,
    }


def _with_loader(result: Mapping[str, Any]) -> list[Metric]:
    """Return the second figure of a job whose batches are in memory: with a loader in the timed loop."""
    loaded = result.get("loaded")
    if not loaded:
        return []
    low, high = loaded["rate_interval_per_s"] or (None, None)
    definition = "items / time of the kept observations, batches from a loader of files"
    unit = f"{result['unit']}/s"
    return [Metric(WITH_LOADER, loaded["rate_per_s"], unit, low, high, definition=definition)]


def _with_figures(run: RunRecord, result: Mapping[str, Any]) -> RunRecord:
    low, high = result["rate_interval_per_s"] or (None, None)
    definition = "items / time of the kept observations, data wait included"
    rate = Metric("throughput", result["rate_per_s"], f"{result['unit']}/s", low, high, definition=definition)
    environment = result["environment"]
    return replace(
        run,
        metrics=(rate, *_with_loader(result)),
        samples=Samples(),
        unit=result["unit"],
        items_per_step=float(result["items_per_batch"]),
        job_version=result["hashes"]["job"][:12],
        data=data_source(result["provenance"]) or "unknown",
        feed=result["feed"],
        skipped_steps=result["training"]["skipped_steps"],
        versions={**run.versions, **environment["versions"]},
        window={**{name: result[name] for name in _WINDOW}, "seconds": result["window_s"]},
    )
