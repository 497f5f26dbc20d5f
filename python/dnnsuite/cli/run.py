# SPDX-License-Identifier: MIT
"""`dnnsuite run`: a benchmark suite, the way several users share a machine."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .._runs.folder import CLUSTER_FILE, SUITE_FILE, default_out
from .._runs.record import RunRecord
from ..errors import InvalidArgument
from ._late import pin, pin_report, suites
from ._options import Json, Number, Real, Text, Texts
from ._status import keeping, say, tell


def run(
    suite: Annotated[str, "baselines, fast, 2026, a file (json, toml), or jobs: a or a,b."],
    name: Annotated[Texts, "Run only this job; repeatable, or a,b."] = None,
    exclude: Annotated[Texts, "Jobs to leave out, e.g. a,b."] = None,
    repeats: Annotated[Number, "Runs of the whole suite.  [1]"] = None,
    copies: Annotated[Text, "Copies of a job at once: per-gpu, a number, or all.  [per-gpu]"] = None,
    alone: Annotated[bool, "Start only one copy, in the share that it would have among all."] = False,
    device: Text = None,
    precision: Annotated[Text, "Precision, if the job supports it.  [each job's]"] = None,
    preset: Annotated[
        Text, "quick (minutes on two cores), default, or paper (the sizes of each job).  [default]"
    ] = None,
    batch_size: Annotated[Number, "Items of a batch, for every job.  [each job's]"] = None,
    order: Annotated[Text, "Order of the jobs in each run.  [fixed]"] = None,
    timeout: Annotated[Real, "Seconds a job may take.  [14400]"] = None,
    pin: Annotated[Text, "How copies are isolated.  [auto]"] = None,
    require: Annotated[Text, "Weakest isolation to accept."] = None,
    seed: Annotated[Number, "Seed of the first run; run k uses seed + k.  [0]"] = None,
    data: Text = None,
    dataroot: Annotated[Text, "Folder with the data sets.  [$DATA_DIRECTORY of a jobs file]"] = None,
    plugin: Texts = None,
    monitor: Text = None,
    no_loader: Annotated[bool, "Skip the second measurement, with a loader, of jobs that have one."] = False,
    cold: Annotated[bool, "Drop each job's files from the page cache before it runs; without root."] = False,
    out: Annotated[Text, "Output directory.  [dnnsuite-runs/SUITE-TIME]"] = None,
    resume: bool = False,
    allow_changed: Texts = None,
    cluster: Annotated[Text, "Run each job of each run as a task of a cluster."] = None,
    cluster_option: Texts = None,
    nproc: Annotated[Number, typer.Option(hidden=True)] = None,
    shard: Annotated[bool, typer.Option(hidden=True)] = False,
    dry_run: Annotated[bool, "Print the command of each job; run nothing."] = False,
    show: Annotated[bool, "Print the names of the jobs; with --json, as a jobs file to edit."] = False,
    quiet: bool = False,
    as_json: Json = False,
) -> int:
    """Run a benchmark suite in isolated shares of the machine.

    Jobs run as several copies at once, each in its own share; jobs that need the whole machine run alone.
    """
    if nproc is not None or shard:
        named = "--shard" if shard else f"--nproc {nproc}"
        raise InvalidArgument(
            f"{named}: run measures copies of a job side by side, each in one process with a share of the machine; "
            "to train one model in several processes, to the same target, use `dnnsuite train JOB`"
        )
    asked = {
        "names": _split(name), "exclude": _split(exclude), "repeat": repeats, "copies": copies,
        "alone": alone or None, "device": device,
        "precision": precision, "preset": preset, "batch_size": batch_size, "order": order, "timeout_s": timeout,
        "pin": pin, "require": require, "seed": seed, "data": data, "dataroot": dataroot, "plugins": plugin,
        "monitor": monitor, "cold": cold or None,
        "loader": False if no_loader else None, "allow_changed": allow_changed,
    }  # fmt: skip
    if show or dry_run:
        return _show(suite, asked, as_json) if show else _describe(*suites.prepare(suite, asked), as_json)

    stem = Path(suite).stem
    if cluster is not None or cluster_option:
        where = Path(out) if out else default_out(stem, CLUSTER_FILE, resume)
        return _run_on_cluster(suite, asked, where, cluster or "slurm", cluster_option or [], resume, as_json)
    return _run(suite, asked, Path(out) if out else default_out(stem, SUITE_FILE, resume), resume, as_json, quiet)


def _split(values: list[str] | None) -> list[str] | None:
    return None if not values else [part.strip() for value in values for part in value.split(",") if part.strip()]


def _show(suite: str, asked: dict[str, Any], as_json: bool) -> int:
    found, _, _ = suites.prepare(suite, asked)
    if not as_json:
        tell(", ".join(entry.name for entry in found.entries))
        return 0
    listed = [
        {"name": entry.name, "cmd": entry.command, "args": entry.flags(), "cgroup": entry.scope}
        for entry in found.entries
    ]
    print(json.dumps(listed, indent=2))
    return 0


def _describe(suite: suites.Suite, settings: suites.SuiteSettings, plan: pin.Plan, as_json: bool) -> int:
    if as_json:
        jobs = [entry.to_dict() for entry in suite.entries]
        print(json.dumps({"suite": suite.name, "settings": settings.to_dict(), "jobs": jobs, "plan": plan.to_dict()}))
        return 0
    for entry in suite.entries:
        tell(f"{entry.name}: {entry.missing}" if entry.missing else entry.command_line())
    students = sum(entry.scope != "all" for entry in suite.entries)
    again = f", {settings.repeat} times" if settings.repeat > 1 else ""
    counted = f"{len(suite.entries)} job{'s' * (len(suite.entries) > 1)}"
    print(
        f"{counted} on {suite.device}{again}: {students} in {len(plan.slots)} copies at once, "
        f"{len(suite.entries) - students} alone with the machine",
        file=sys.stderr,
    )
    print(pin_report.render_plan(plan), file=sys.stderr)
    return 0


def _run(suite: str, asked: dict[str, Any], out: Path, resume: bool, as_json: bool, quiet: bool) -> int:
    with keeping(out, suites.SUITE_FILE, f"dnnsuite run {suite}"):
        finished = suites.run_suite(suite, asked, out, resume, quiet=quiet)
    print(json.dumps(_as_dict(finished)) if as_json else _next_step(out))
    for problem in finished.problems:
        say(problem)
    for run in finished.runs:
        if not run.ok:
            which = f"{run.details['key']} run {run.repeat} copy {run.details['slot']}"
            say(f"{which}: {run.verdict.failure}: {run.verdict.message}")
    return 0 if finished.ok else 1


def _next_step(out: Path) -> str:
    return f"results in {out}; report: dnnsuite report {shlex.quote(str(out))}"


def _run_on_cluster(
    suite: str, asked: dict[str, Any], out: Path, cluster: str, options: list[str], resume: bool, as_json: bool
) -> int:
    say = (lambda line: print(line, file=sys.stderr)) if as_json else print
    ok = suites.run_on_cluster(suite, asked, out, cluster, parameters(options), resume, say)
    print(json.dumps({"out": str(out), "ok": ok}) if as_json else _next_step(out))
    return 0 if ok else 1


def parameters(options: list[str]) -> dict[str, Any]:
    """Parse NAME=VALUE texts; a value that is a number becomes one."""
    found: dict[str, Any] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name:
            raise InvalidArgument(f"--cluster-option {option}: expected NAME=VALUE, e.g. timeout_min=60")
        found[name] = int(value) if value.isdecimal() else value
    return found


def _as_dict(finished: suites.Finished) -> dict[str, Any]:
    state = finished.state
    return {
        "suite": state["name"],
        "out": str(finished.root),
        "ok": finished.ok,
        "isolation": state["isolation"],
        "runs": [_run_as_dict(run) for run in finished.runs],
    }


def _run_as_dict(run: RunRecord) -> dict[str, Any]:
    rate = run.metrics[0] if run.metrics else None
    return {
        "job": run.job, "key": run.details["key"], "repeat_index": run.repeat, "slot": run.details["slot"],
        "copies": run.copies, "scope": run.details["scope"], "status": run.verdict.status,
        "failure": run.verdict.failure, "message": run.verdict.message, "unit": run.unit,
        "rate_per_s": rate and rate.value, "rate_interval_per_s": rate and [rate.low, rate.high],
        "quality": run.details.get("quality"), "flags": run.disturbances, "elapsed_s": run.seconds,
    }  # fmt: skip
