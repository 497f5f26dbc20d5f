# SPDX-License-Identifier: MIT
"""A suite in a directory: it is begun or continued there, and can be interrupted at any moment."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import host
from .._runs import facts
from .._runs.folder import SUITE_FILE as SUITE_FILE
from .._runs.folder import PlanFolder, opened, refuse_other_settings, stamp
from .._runs.identity import check_same
from .._runs.interrupts import interruptible
from .._runs.progress import Progress
from .._runs.record import MISSED, VERSION, RunRecord
from ..errors import InvalidArgument
from ..pin import Partition, Plan, Topology
from ._runner import Runner, orders
from ._screen import Screen
from ._settings import SuiteSettings, plan_of
from ._suite import Suite, code_of, identity_of_entries, resolve
from .entry import SuiteEntry

_MAY_CHANGE = ("repeat", "timeout_s", "allow_changed")  # by --resume


@dataclass(frozen=True)
class Finished:
    """Result of a suite.

    Attributes:
        root: its directory.
        state: content of `suite.json`.
        runs: record of every run.
        problems: the reason for each record that cannot be read.
    """

    root: Path
    state: dict[str, Any]
    runs: list[RunRecord]
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if every copy of every job succeeded, and reached its target if it has one."""
        return not self.problems and all(run.ok and MISSED not in run.disturbances for run in self.runs)


def prepare(
    suite: str, asked: Mapping[str, Any], topology: Topology | None = None
) -> tuple[Suite, SuiteSettings, Plan]:
    """Look up the suite, its settings and its shares of the machine, without running anything.

    Args:
        suite, asked: see :func:`run_suite`.
        topology: the machine; by default this one.

    Raises:
        InvalidArgument, Unavailable, Error: the suite cannot run; the message says why.
    """
    settings = SuiteSettings.of(asked)
    dataroot = asked.get("dataroot") or _usual_dataroot()
    if dataroot is not None and not os.path.isdir(dataroot):
        raise InvalidArgument(f"--dataroot {dataroot}: no such directory")
    absolute = None if dataroot is None else os.path.abspath(dataroot)
    resolved = resolve(suite, {**asked, "dataroot": absolute, "variables": _variables(suite, absolute)})
    return resolved, settings, plan_of(settings.copies, resolved.device, topology or Topology.read())


def run_suite(suite: str, asked: Mapping[str, Any], out: Path, resume: bool = False, quiet: bool = False) -> Finished:
    """Run a suite into a directory.

    Args:
        suite: `baselines`, `fast`, `2026`, a jobs file, or the name of a job.
        asked: the options given, as for :func:`dnnsuite.suites.resolve` and :class:`SuiteSettings`.
        out: output directory, which must be empty or absent; with `resume`, the directory to continue.
        resume: run what is missing in `out`.
        quiet: print nothing.

    Raises:
        InvalidArgument, Unavailable, OutputError: the suite cannot run; the message says why. Finished runs are kept.
        Interrupted: a signal arrived; finished runs are kept, and no process or control group is left behind.
    """
    prepared = None if resume else prepare(suite, asked)
    with interruptible(), opened(out, SUITE_FILE, resume) as record:
        resolved, settings, plan = prepared or _continued(record, suite, asked)
        with Partition(plan, settings.pin, settings.require) as partition:
            _begin(record, resolved, settings, partition, asked)
            try:
                with Progress(quiet=quiet) as progress:
                    screen = Screen(progress)
                    screen.isolation(partition.level, partition.reasons)
                    Runner(record, resolved, settings, partition, screen).execute()
            except BaseException as error:
                record.end_early(error)
                raise
        runs, problems = record.finished()
        finished = Finished(out, record.state, [run.record for run in runs], tuple(problems))
        record.state["status"] = "done" if finished.ok else "failed"
        record.save()
        return finished


def run(suite: str | Path, out: str | Path, resume: bool = False, quiet: bool = False, **options: Any) -> Finished:
    """Run a benchmark suite, like the command `dnnsuite run SUITE`.

    Args:
        suite: `baselines`, `fast`, `2026`, a jobs file, or the name of a job.
        out: output directory, which must be empty or absent; with `resume`, the directory to continue.
        resume: run what is missing in `out`.
        quiet: show no progress.
        options: options of the command, with underscores: those of :class:`SuiteSettings`, and `names`, `exclude`,
            `device`, `precision`, `preset`, `batch_size`, `data`, `dataroot` and `plugins`.

    Returns:
        The record of every run (rates in items per second), and a sentence for each that cannot be read.

    Raises:
        InvalidArgument, Unavailable, OutputError: the suite cannot run; the message says why. Finished runs are kept.
        Interrupted: a signal arrived; finished runs are kept, and `resume` continues.
    """
    return run_suite(str(suite), options, Path(out), resume, quiet=quiet)


def _usual_dataroot() -> str | None:
    """`$DATA_DIRECTORY`, where data sets that are at hand lie; None where that is not set, or no folder."""
    named = os.environ.get("DATA_DIRECTORY")
    return named if named and os.path.isdir(named) else None


def _variables(suite: str, dataroot: str | None) -> dict[str, str]:
    """Values of `$NAME` in a jobs file: the environment, and the variables of the original's config.env."""
    base = os.environ.get("BASE", os.getcwd())
    return {
        "DATA_DIRECTORY": dataroot or os.path.join(base, "data"),
        "OUTPUT_DIRECTORY": os.path.join(base, "output"),
        "TEMP_DIRECTORY": os.path.join(base, "tmp"),
        "DEVICE_TOTAL": str(max(1, len(host.gpus()))),
        **os.environ,
        "JOB_FILE": Path(suite).stem,
    }


def _begin(
    record: PlanFolder, suite: Suite, settings: SuiteSettings, partition: Partition, asked: Mapping[str, Any]
) -> None:
    state = record.state
    known = {"format": VERSION, "created": stamp(), "asked": _plain(asked), **facts.environment()}
    repeats = [*state.get("repeats", ())]
    repeats += [{"seconds": 0.0, "complete": False} for _ in range(settings.repeat - len(repeats))]
    record.state.update({
        **{key: value for key, value in known.items() if key not in state},
        "name": suite.name, "size": suite.size, "source": suite.source, "preset": suite.preset,
        "device": suite.device, "plugins": list(suite.plugins), "settings": settings.to_dict(),
        "jobs": [entry.to_dict() for entry in suite.entries], "code": code_of(suite),
        "order": orders(settings, suite.entries),
        "plan": partition.plan.to_dict(), "isolation": partition.record(), "repeats": repeats, "status": "running",
    })  # fmt: skip
    record.save()


def _continued(record: PlanFolder, suite: str, asked: Mapping[str, Any]) -> tuple[Suite, SuiteSettings, Plan]:
    """Return the recorded suite, if what is asked for now and the machine agree with it."""
    state = record.state
    recorded = SuiteSettings(**state["settings"])
    odd = [] if Path(suite).stem == state["name"] else [f"the suite is {suite}, was {state['name']}"]
    for name, value in _plain(asked).items():
        was = state["asked"].get(name, state["settings"].get(name))
        if name not in _MAY_CHANGE and value != was:
            odd.append(f"--{name.replace('_', '-')} is {value}, was {was}")
    odd += facts.changes(state, facts.environment())
    plan = Plan.from_dict(state["plan"])
    if not odd and plan_of(recorded.copies, state["device"], Topology.read()).hash != plan.hash:
        odd.append("the shares of the machine are others")
    refuse_other_settings(record.root, odd)
    changed = {name: asked[name] for name in _MAY_CHANGE if asked.get(name) is not None}
    settings = SuiteSettings.of({**state["settings"], **changed})
    if settings.repeat < recorded.repeat:
        raise InvalidArgument(f"--repeats {settings.repeat}: {record.root} has {recorded.repeat} already")
    where = suite if Path(suite).is_file() else state.get("source") or suite
    now = prepare(where, {**state["asked"], **_plain(asked), "plugins": state["plugins"], "preset": state["preset"]})[0]
    entries = _same_entries(record, now, asked.get("allow_changed") or ())
    return replace(now, entries=entries, device=state["device"], size=state["size"]), settings, plan


def _same_entries(record: PlanFolder, now: Suite, allowed: Sequence[str]) -> tuple[SuiteEntry, ...]:
    """Return the recorded entries, but for what was missing and what may be another now; refuse others that differ."""
    state = record.state
    recorded = {entry.key: entry for entry in map(SuiteEntry.from_dict, state["jobs"])}
    missing = {entry.key for entry in (*recorded.values(), *now.entries) if entry.missing}  # then or now
    then, today = (
        identity_of_entries([entry for entry in entries if entry.key not in missing], code)
        for entries, code in ((recorded.values(), state.get("code", {})), (now.entries, code_of(now)))
    )
    new = check_same(record.root, then.to_dict(), today, allowed)
    state["changed"] = {**state.get("changed", {}), **new}
    return tuple(
        entry if entry.key in new or recorded[entry.key].missing else recorded[entry.key] for entry in now.entries
    )


def _plain(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Options that were given, as JSON keeps them."""
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in asked.items() if value is not None
    }
