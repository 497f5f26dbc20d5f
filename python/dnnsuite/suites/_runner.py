# SPDX-License-Identifier: MIT
"""A suite, job after job and run after run: each copy in its share, each result whole on the disk before the next."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import timing
from .._C import parse_cpu_list
from .._files import write_text
from .._runs import facts
from .._runs.folder import PlanFolder, final
from .._runs.group import InShares
from .._runs.interrupts import deferred
from .._runs.limits import memory_share_bytes
from .._runs.record import Isolation, Moment, RunRecord, Verdict, new_id
from .._runs.spec import WorkerSpec
from .._runs.turn_workers import run_group
from .._runs.words import ordered
from ..jobs.cards import version_of
from ..pin import Partition, Slot
from ..profiler.monitor import Monitor
from ._page_cache import before_run, unused_dataroot
from ._records import ended_run, missing_run, run_name, summary_line, total_line, write_failure, write_reports
from ._screen import Screen
from ._settings import SuiteSettings, processes_of, seed_of, threads_of, uuids_of
from ._suite import Suite
from .entry import SuiteEntry

if TYPE_CHECKING:
    from ..jobs import JobConfig


@dataclass(frozen=True)
class _Group:
    """The copies of one job in one run of the suite."""

    entry: SuiteEntry
    repeat: int
    shares: tuple[int | str, ...]  # numbers of shares, or `all`

    def names(self) -> list[str]:
        return [run_name(self.entry.key, self.repeat, slot) for slot in range(len(self.shares))]


class Runner:
    """Runner of what a record does not have yet."""

    def __init__(
        self, record: PlanFolder, suite: Suite, settings: SuiteSettings, partition: Partition, screen: Screen
    ) -> None:
        self.record, self.suite, self.settings = record, suite, settings
        self.partition, self.screen = partition, screen
        self.plan = partition.plan
        self._lines: list[list[str]] = record.state.setdefault("summary", [])  # [name of what it tells, line]
        self.entries = {entry.key: entry for entry in suite.entries}

    def execute(self) -> None:
        """Every job in every run of the suite."""
        groups = self._groups()
        done, problems = self.record.finished()
        for problem in problems:
            self.screen.line(problem)
        settled = {run.directory.name for run in done if final(run.record)}
        # The copies of a job belong together: all of them are made again, or none.
        left = [group for group in groups if not settled.issuperset(group.names())]
        known = {run.directory.name: run.record for run in done}
        for group in groups:
            if group not in left:  # a process that was killed may have left no more than the records
                self._tell(group, [known[name] for name in group.names()], None)
        self.screen.begin(self.suite, self.settings.repeat, len(groups), [(g.entry.key, g.repeat) for g in left])
        for repeat in range(self.settings.repeat):
            for group in left:
                if group.repeat == repeat:
                    self._run(group)
            self._total(repeat)

    def _groups(self) -> list[_Group]:
        """Groups of entries in the order in which they run."""
        found = []
        for repeat, keys in enumerate(self.record.state["order"]["jobs"]):
            for key in keys:
                entry = self.entries[key]
                students = 1 if self.settings.alone else len(self.plan.slots)
                shares: tuple[int | str, ...] = ("all",) if entry.scope == "all" else tuple(range(students))
                found.append(_Group(entry, repeat, shares))
        return found

    def _run(self, group: _Group) -> None:
        began_s = time.monotonic()
        self.screen.start(group.entry.key, group.repeat)
        runs = self._missing(group) if group.entry.missing else self._measured(group)
        seconds = time.monotonic() - began_s
        self._tell(group, runs, seconds)
        self.screen.done(group.entry.key, group.repeat, runs, seconds)

    def _tell(self, group: _Group, runs: Sequence[RunRecord], seconds: float | None) -> None:
        """Write what is told of a group's runs beside their records; None for those of before, told once at most."""
        entry, name = group.entry, f"{group.entry.key} {group.repeat}"
        self._write_reports(group, runs)
        if seconds is None and any(told == name for told, _ in self._lines):
            return self._write_summary()
        took = max((run.seconds for run in runs), default=0.0) if seconds is None else seconds
        failed = sum(not run.ok for run in runs)
        line = summary_line(entry.index, self.suite.size, failed, len(runs), took, entry.command)
        self.record.state["repeats"][group.repeat]["seconds"] += took
        self._add(name, line)

    def _add(self, name: str, line: str) -> None:
        """Add a line to `summary.txt`; the record, which keeps all of them, has it first."""
        with deferred():
            self._lines.append([name, line])
            self.record.save()
            self._write_summary()

    def _write_summary(self) -> None:
        write_text(self.record.root / "summary.txt", "".join(f"{line}\n" for _, line in self._lines))

    def _missing(self, group: _Group) -> list[RunRecord]:
        runs = []
        for i, name in enumerate(group.names()):
            directory = self.record.begin_run(name)
            for text in ("stdout.txt", "stderr.txt"):
                write_text(directory / text, "")
            run = missing_run(self._asked(group, i), group.entry.missing)
            self.record.finish_run(directory, run)
            runs.append(run)
        return runs

    def _measured(self, group: _Group) -> list[RunRecord]:
        directories = [self.record.begin_run(name) for name in group.names()]
        specs = [self._spec(group, i, directory) for i, directory in enumerate(directories)]
        state, details = before_run(group.entry, self.settings.cold)
        flags = tuple(filter(None, [unused_dataroot(group.entry)]))
        asked = [
            replace(known, page_cache=state, disturbances=flags, details={**known.details, "page_cache": details})
            for known in (self._asked(group, i) for i in range(len(directories)))
        ]
        self.screen.watch(directories)
        monitor = self._monitor(group)
        with monitor:
            outcome = run_group(
                specs,
                [self._variables(group.entry, group.repeat)] * len(specs),
                self.settings.timeout_s,
                InShares(self.partition, group.shares),
                "continue",
                self.screen.tick,
                monitor.follow,
            )
        pinning = self.partition.record()
        runs = [
            ended_run(directory, about, worker, pinning, monitor.record())
            for directory, about, worker in zip(directories, asked, outcome.workers, strict=True)
        ]
        for copy, directory in enumerate(directories):
            slot = self._slot(group, copy)
            monitor.write(directory, slot.gpus if group.entry.device != "cpu" else None)
        with deferred():  # the copies of a job belong together: all of them, or none
            for directory, run in zip(directories, runs, strict=True):
                self.record.finish_run(directory, run)
        return runs

    def _monitor(self, group: _Group) -> Monitor:
        """One for all copies, on CPUs that no copy has where there are some."""
        taken = {cpu for i in range(len(group.shares)) for cpu in parse_cpu_list(self._slot(group, i).cpus)}
        free = os.sched_getaffinity(0) - taken
        return Monitor(self.settings.monitor, free, gpus=group.entry.device != "cpu")

    def _slot(self, group: _Group, copy: int) -> Slot:
        return self.plan.slot(group.shares[copy])

    def _asked(self, group: _Group, copy: int) -> RunRecord:
        """Return the record of a copy as far as it is known before it runs."""
        entry, slot, state = group.entry, self._slot(group, copy), self.record.state
        config = self._config(group, copy)
        uuids = tuple(uuids_of(self.plan, slot)) if entry.device != "cpu" else ()
        return RunRecord(
            id=new_id(), kind="suite", plan_id=self.record.id, plan=self.suite.name, job=entry.name, mode="shares",
            precision=entry.precision, B=1, repeat=group.repeat, verdict=Verdict.good(),
            machine=facts.machine(state["machine"]), device=facts.device(entry.device, state["machine"], uuids),
            started=Moment.now(), unit=entry.unit, share="all" if entry.scope == "all" else str(copy),
            copies=len(group.shares), preset=entry.preset or self.suite.preset or "", seed=config.seed,
            batch_size=entry.batch_size, processes=processes_of(entry, self.plan, slot), threads=config.threads or 0,
            isolation=Isolation(asked=self.settings.pin), versions=state["versions"], commit=facts.commit(),
            variant=entry.variant, changed=self._changed(entry), asked=state["asked"], resolved=self.settings.to_dict(),
            details={
                "key": entry.key, "program": entry.job, "index": entry.index, "scope": entry.scope, "slot": copy,
                "config": config.to_dict(), "observations": entry.repeat, "number": entry.number,
                "arguments": entry.flags(), "seed_unit": entry.seed_unit, "card": version_of(entry.job),
                "weight": entry.weight,
            },
        )  # fmt: skip

    def _changed(self, entry: SuiteEntry) -> dict[str, Any]:
        """Settings that are not the job's own, and what differed when the suite was resumed."""
        told = self.record.state.get("changed", {}).get(entry.key)
        return entry.changed if told is None else {**entry.changed, "resumed": told}

    def _config(self, group: _Group, copy: int) -> JobConfig:
        alone = group.entry.scope == "all"
        run = self.settings.seed + group.repeat
        seed = seed_of(run, None if alone else copy, len(self.plan.slots))
        slot = self._slot(group, copy)
        return group.entry.config(seed, max(1, threads_of(slot) // processes_of(group.entry, self.plan, slot)))

    def _spec(self, group: _Group, copy: int, directory: Path) -> WorkerSpec:
        entry, slot = group.entry, self._slot(group, copy)
        gpu = self.plan.gpus[slot.gpus[0]].name if slot.gpus and entry.device != "cpu" else None
        limited = self.partition.level == "none" and entry.device == "cpu"
        processes = processes_of(entry, self.plan, slot)
        details = {
            "name": entry.name,
            "repeat": entry.repeat,
            "number": entry.number,
            "preset": entry.preset,
            "arguments": self._arguments(group, copy),
            "with_loader": self.settings.loader and entry.preset not in ("smoke", "quick"),
            "conditions": {"preset": entry.preset, "changed": entry.changed},
            "device_uuids": uuids_of(self.plan, slot) if entry.device != "cpu" else [],
            "about": {"hostname": socket.gethostname(), "run_id": group.repeat} | ({"gpu": gpu} if gpu else {}),
            "launched_ns": timing.now_ns(),
        }
        return WorkerSpec(
            "dnnsuite.suites.tasks:measure",
            str(directory),
            entry.job,
            self._config(group, copy).to_dict(),
            details,
            self.suite.plugins,
            (os.getcwd(),),
            # A share limits memory by itself.
            memory_share_bytes(len(group.shares) * processes) if limited else None,
            processes,
        )

    def _arguments(self, group: _Group, copy: int) -> dict[str, Any]:
        """Arguments as the original's scripts print and report them."""
        entry, slot = group.entry, self._slot(group, copy)
        devices = ",".join(map(str, slot.gpus)) if slot.gpus else str(copy)
        options = dict(entry.options)
        return {
            "batch_size": entry.batch_size, "cuda": entry.device != "cpu", "workers": options.pop("workers", 0),
            "seed": self._config(group, copy).seed, "devices": max(1, len(slot.gpus)), "jr_id": copy,
            # The original's reader counts its characters.
            "vcd": devices, "cpu_cores": slot.threads, "data": entry.dataroot or entry.data, **options,
            "precision": entry.precision, "repeat": entry.repeat, "number": entry.number, "report": "report.json",
        }  # fmt: skip

    def _variables(self, entry: SuiteEntry, repeat: int) -> dict[str, str]:
        """Variables that the original exported to its scripts, and one without which fp32 would be TF32."""
        found = {
            "JOB_RUNNER": "1",
            "JOB_FILE": self.suite.name,
            "BENCH_NAME": entry.name,
            "RUN_ID": str(repeat),
            "OUTPUT_DIRECTORY": str(self.record.root.resolve()),
            "DEVICE_TOTAL": str(len(self.plan.gpus)),
        }
        if entry.device == "cpu":
            found["CUDA_VISIBLE_DEVICES"] = ""
        elif entry.precision == "fp32":
            found["NVIDIA_TF32_OVERRIDE"] = "0"
        return found

    def _write_reports(self, group: _Group, made: Sequence[RunRecord]) -> None:
        for copy, run in enumerate(made):
            write_failure(self.record.root, run, self._arguments(group, copy))
        for slot in range(len(group.shares)):
            runs = [self.record.runs / run_name(entry.key, group.repeat, slot) for entry in self.suite.entries]
            write_reports(self.record.root, self.suite.name, group.repeat, slot, runs)

    def _total(self, repeat: int) -> None:
        about = self.record.state["repeats"][repeat]
        if not about["complete"]:
            about["complete"] = True
            self._add(f"total {repeat}", total_line(about["seconds"]))


def orders(settings: SuiteSettings, entries: Sequence[SuiteEntry]) -> dict[str, Any]:
    """Return the order of every run of the suite, for the record."""
    keys = [entry.key for entry in entries]
    lists = [ordered(settings.order, keys, repeat, settings.seed) for repeat in range(settings.repeat)]
    return {"kind": settings.order, "seed": settings.seed, "jobs": lists}
