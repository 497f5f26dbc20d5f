# SPDX-License-Identifier: MIT
"""Records of a suite's runs, from what was asked of a copy, what its worker wrote and how its process ended; and the
output and files of mila-iqia/training (its README of November 2019), to the character.

`summary.txt` and the tree of reports grow with a suite, for tools of the original suite.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._files import OutputError, read_json, write_text
from .._runs.group import WorkerOutcome
from .._runs.record import WITH_LOADER, Metric, RunRecord, Samples, Verdict, data_source
from .._runs.spec import RESULT_FILE, SPEC_FILE

if TYPE_CHECKING:
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


def write_reports(root: Path, suite: str, repeat: int, slot: int, runs: Iterable[Path]) -> None:
    """`mila/<repeat>/<suite>_<slot>.json`: the reports of a device in one run of the suite, where they have one."""
    reports: list[Any] = []
    for run in runs:
        if (run / "report.json").is_file():
            reports += read_json(run / "report.json")
    path = root / "mila" / str(repeat) / f"{suite}_{slot}.json"
    if not reports:
        path.unlink(missing_ok=True)
        return
    _write_below(path, unclosed(reports))


def write_failure(root: Path, run: RunRecord, arguments: Mapping[str, Any]) -> None:
    """`mila/<suite>.<job>.R<repeat>.D<devices>.FAIL.json` of a run that failed, as the original's last version has it.

    Its reader counts those; the first one's passes by what lies beside the folders of the runs. A run that went well
    now has none.

    Args:
        arguments: arguments that its report would have.
    """
    name = f"{run.plan}.{run.details['key']}.R{run.repeat}.D{arguments['vcd']}.FAIL.json"
    if run.ok:
        (root / "mila" / name).unlink(missing_ok=True)
        return
    known = {"failure": run.verdict.failure, "message": run.verdict.message, "preset": run.preset}
    report = {
        **arguments, "name": run.job, "suite": run.plan, "run_id": run.repeat, "hostname": run.machine.hostname,
        "batch_loss": [], "completed": False, "dnnsuite": {**known, "changed": run.changed},
    }  # fmt: skip
    _write_below(root / "mila" / name, report_json(report) + "\n")


def _write_below(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {path.parent}: {error.strerror}") from error
    write_text(path, text)


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
