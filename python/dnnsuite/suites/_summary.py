# SPDX-License-Identifier: MIT
"""Files that grow with a suite and that tools of the original suite read: `summary.txt`, and its reports' tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .._files import OutputError, read_json, write_text
from .._runs.record import RunRecord
from ._seed_format import report_json, unclosed


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
    _write(path, unclosed(reports))


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
    _write(root / "mila" / name, report_json(report) + "\n")


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {path.parent}: {error.strerror}") from error
    write_text(path, text)
