# SPDX-License-Identifier: MIT
"""All parts of a report, made from the table of runs and from nothing else."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import results
from .._files import read_json
from .._lazy import pandas
from .._runs.folder import SUITE_FILE
from ..errors import Error, InvalidArgument, some_of
from ..results.intervals import FEWEST_RUNS
from ..results.pool import UNKNOWN, odd_copies, reasons, refuse_unlike
from ._entries import ReportEntry, by_job, by_run, entries_of, finished, of_suites, rows_of_report
from ._score import LEAST_RUNS, Score, Statistic, score, score_table, seed_table, statistics, weights_of
from ._summary import (
    Costs,
    cost_table,
    device_table,
    failures,
    gpu_watts,
    interference_table,
    isolation,
    summary_table,
    target_table,
)
from .targets import JOBS, Target, load, uncompared

_JOB = ("job",)  # a row of a report; what it pools must be alike


@dataclass(frozen=True)
class SuiteReport:
    """The parts of a report, which are rendered as text, Markdown or HTML. A part that was not requested or not
    measured is None.

    `machine` has the conditions that all entries share, and where and when they ran. `differing` has the conditions in
    which jobs differ, with the jobs for each value. `uncompared` says why the rate of a job must not be compared with
    its target. `not_run` lists the jobs of the suite without a run, `costs` the cost of items at `prices`, and
    `problems` has a sentence for each damaged record, which is left out.
    """

    title: str
    entries: Sequence[ReportEntry]
    machine: dict[str, str]
    summary: pandas.DataFrame
    devices: pandas.DataFrame
    failures: dict[str, list[ReportEntry]]
    isolation: dict[str, int]
    seed: pandas.DataFrame
    statistics: list[Statistic]
    target: str | None = None
    scored: pandas.DataFrame | None = None
    score: Score | None = None
    interference: pandas.DataFrame | None = None
    to_target: pandas.DataFrame | None = None
    uncompared: dict[str, list[str]] = field(default_factory=dict)
    differing: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    costs: pandas.DataFrame | None = None
    prices: Costs = field(default_factory=Costs)
    not_run: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """True if every statistic passes, nothing failed, every job reached its target of learning, and every job with
        a target machine was compared with it."""
        return self.verdict == "PASS"

    @property
    def learned(self) -> dict[str, str]:
        """Metric and target of each job, from its last execution, or from the first one that missed the target."""
        found = {}
        for job, of_job in by_job(entry for entry in self.entries if entry.quality).items():
            missed = [entry for entry in of_job if entry.missed]
            many = f" (reached in {len(of_job) - len(missed)} of {len(of_job)} executions)" if len(of_job) > 1 else ""
            found[job] = (missed or of_job[-1:])[0].quality + many
        return found

    @property
    def missed(self) -> dict[str, str]:
        """Jobs that missed their target. Their rates mean nothing, because the training does not work."""
        missed = {entry.job for entry in self.entries if entry.missed}
        return {job: said for job, said in self.learned.items() if job in missed}

    @property
    def verdict(self) -> str:
        """PASS, FAIL, NOT COMPARABLE, INCONCLUSIVE or NOT ENOUGH RUNS.

        NOT COMPARABLE: everything that was compared passes, but some jobs must not be compared. INCONCLUSIVE: the
        machine was too busy to measure a rate. NOT ENOUGH RUNS: nothing failed, but there are too few runs for the
        statistics.
        """
        if self.failures or self.missed:
            return "FAIL"
        if any(entry.inconclusive for entry in self.entries):
            return "INCONCLUSIVE"
        if self.statistics and self.seed["sd"].isna().any():
            return "NOT ENOUGH RUNS"
        bad = any(not line.passed for line in self.statistics)
        return "FAIL" if bad else "NOT COMPARABLE" if self.uncompared else "PASS"

    @property
    def below(self) -> list[tuple[str, float]]:
        """Jobs that are slower than their target, with the difference as a fraction, the slowest first."""
        low = self.seed["diff"][self.seed["diff"] < 0].sort_values()
        return [(str(job), float(diff)) for job, diff in low.items()]

    @property
    def headline(self) -> str:
        """The verdict in words, with its rule. The original's rule is the mean over all jobs."""
        if self.verdict == "NOT ENOUGH RUNS":
            return f"NOT ENOUGH RUNS: {self.summary['runs'].min()} of {LEAST_RUNS}"
        if self.verdict == "INCONCLUSIVE":
            jobs = dict.fromkeys(entry.job for entry in self.entries if entry.inconclusive)
            return f"INCONCLUSIVE, the machine was busy: {some_of(jobs)}"
        if self.verdict != "PASS":
            return self.verdict
        if self.target is None:
            return "PASS, with no target"
        return "PASS on the mean of all jobs" if self.below else "PASS"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; NaN becomes None."""
        score = self.score and {
            **vars(self.score), "score": self.score.value, "price_per_point": self.score.price_per_point,
        }  # fmt: skip
        values: dict[str, Any] = {name: getattr(self, name) for name in _PLAIN_PARTS}
        values |= {
            "definitions": self.summary.attrs["definitions"],
            "failures": {
                kind: [
                    {name: str(getattr(entry, name)) for name in ("job", "run", "device", "message", "path")}
                    for entry in of_kind
                ]
                for kind, of_kind in self.failures.items()
            },
            "seed_table": self.seed,
            "statistics": [vars(line) for line in self.statistics],
            "score_table": self.scored,
            "score": score,
            "currency": self.prices.currency,
        }
        found: dict[str, Any] = plain(values)
        return found


_PLAIN_PARTS = (
    "title", "passed", "learned", "missed", "verdict", "uncompared", "target", "machine", "summary", "devices",
    "isolation", "differing", "not_run", "costs", "to_target", "interference", "notes", "problems",
)  # fmt: skip
Report = SuiteReport  # its name in earlier versions


def read(directories: Sequence[Path], name: str | None = None) -> list[ReportEntry]:
    """Read all entries below `directories`, or only those of the suite called `name`.

    Raises:
        InvalidArgument: a directory is missing, or nothing in it can be read; the message names it.
    """
    return entries_of(rows_of_report(results.load(*directories, name=name)))


def make(
    directories: Sequence[Path],
    name: str | None = None,
    target: str | None = None,
    *,
    title: str = "",
    exclude: Sequence[str] = (),
    price: float | None = None,
    cost_per_hour: float | None = None,
    watts: float | None = None,
    currency: str = "",
    jobs: int | None = None,
    alone: Sequence[Path] = (),
    allow_unlike: bool = False,
) -> SuiteReport:
    """Make a report on the runs below `directories`.

    Args:
        directories: outputs of runs, as for :func:`dnnsuite.results.load`. Runs of a suite get its table, targets and
            score; other runs get rates, intervals and failures.
        name: name of the suite; other suites in the directories are left out.
        target: V100, MI50, RTX, or a CSV file of targets. It is needed for differences and a score.
        title: title of the page.
        exclude: jobs to leave out.
        price: price of the machine.
        cost_per_hour: cost of an hour of the machine.
        currency: currency of both prices, for example EUR.
        watts: power of the machine, W.
        jobs: number of jobs that must have a row; by default the original's 19, or all jobs of another suite.
        alone: directories of the same suite with one copy of each job; they add a table of interference.
        allow_unlike: report on runs even if the work or the machine differs, and add a note.

    Returns:
        The report. `print` shows it, and `html` and `markdown` render it.

    Raises:
        UnlikeRuns: the runs differ, and that is not allowed.
        InvalidArgument, Error: see :func:`dnnsuite.results.load` and `targets.load`.
    """
    prices = Costs(price, cost_per_hour, watts, currency)
    table = results.load(*directories, name=name)
    rows = rows_of_report(table[~table["job"].isin(exclude)])
    notes, odd = _notes_on_unlike(rows, allow_unlike)
    entries = entries_of(rows)
    if not entries:
        kinds = ", ".join(sorted(set(table["kind"]))) or "no run"
        raise InvalidArgument(
            f"nothing to report on in {', '.join(map(str, directories))}: {kinds}, without a rate; a sweep has its "
            "tables in trials.csv and epochs.csv"
        )
    suites = of_suites(entries)
    targets: dict[str, Target] | None = load(target) if target else None
    seed = seed_table(suites, targets)
    unlike = (uncompared(suites, targets) if targets else {}) | odd
    comparable = any(entry.ok and entry.job not in unlike for entry in suites)
    last: dict[str, Target] | None = load(target, last=True) if target and comparable else None
    differing = _differing(entries)
    benches = {entry.job: entry.bench for entry in suites}
    kinds_said = " and ".join(sorted({"suite" if entry.kind == "mila" else entry.kind for entry in entries}))
    originals = JOBS if {"baselines", "fast"} & {entry.plan for entry in suites} else ()
    return SuiteReport(
        title=title or f"{name or kinds_said}: {', '.join(str(directory) for directory in directories)}",
        entries=entries,
        machine=_with_gaps(entries, differing),
        summary=summary_table(entries),
        devices=device_table(entries),
        failures=failures(entries),
        isolation=isolation(entries),
        seed=seed,
        statistics=statistics(seed, jobs or _expected(suites, exclude), benches) if suites else [],
        target=target,
        scored=score_table(suites, last) if last else None,
        score=score(suites, last, price) if last else None,
        uncompared=unlike,
        differing=differing,
        costs=cost_table(entries, prices, gpu_watts(entries)),
        prices=prices,
        not_run=[job for job in originals if job not in {entry.bench for entry in suites} | set(exclude)],
        to_target=target_table(rows, table),
        interference=interference_table(results.load(*alone, name=name), table) if alone else None,
        notes=[*notes, *table.attrs["notes"], *_notes(entries, seed, unlike)],
        problems=table.attrs["problems"],
    )


def _notes_on_unlike(rows: pandas.DataFrame, allowed: bool) -> tuple[list[str], dict[str, list[str]]]:
    """Return how the runs differ in what ran or where, and the jobs of which the copies of one run differ, as they may
    by the steps that they skip: these are flagged. Other differences are refused if they are not allowed."""
    odd = odd_copies(rows)
    if allowed:
        return [str(reason) for reason in reasons(rows, _JOB)], odd
    refuse_unlike(rows[~rows["job"].isin(odd)], _JOB)
    return [], odd


def _expected(entries: Sequence[ReportEntry], exclude: Sequence[str]) -> int:
    """Number of jobs that the suites of these entries have: the original's, or those that each was asked for."""
    if {"baselines", "fast"} & {entry.plan for entry in entries} or any(entry.kind == "mila" for entry in entries):
        return len(JOBS)
    asked = {entry.bench for entry in entries}
    for folder in {entry.path.parent.parent for entry in entries}:
        with suppress(Error, KeyError, TypeError):  # without it, what is there is all there is
            asked |= {each["name"] for each in read_json(folder / SUITE_FILE)["jobs"]}
    return len(asked - set(exclude))


def _notes(entries: Sequence[ReportEntry], seed: pandas.DataFrame, unlike: Mapping[str, Sequence[str]]) -> list[str]:
    """Sentences that a reader of the figures needs."""
    notes = []
    own = {job: weight for job, weight in weights_of(entries).items() if weight != 1}
    if own:
        said = ", ".join(f"{job} {weight:g}" for job, weight in own.items())
        notes.append(f"weights of jobs in the score: {said}; others 1")
    others = sorted({entry.kind for entry in entries} - {entry.kind for entry in of_suites(entries)})
    if others:
        notes.append(
            f"runs of a {' and of a '.join(others)} get rates, intervals and failures by mode, precision and B; "
            "targets, the original's table and a score exist only for suites; `dnnsuite plot` draws curves"
        )
    for job, why in unlike.items():
        notes.append(f"{job} is not compared: {'; '.join(why)}")
    few = [str(job) for job in seed.index[seed["sd"].isna()]]
    if few:
        notes.append(f"fewer than {LEAST_RUNS} runs, so left out of the statistics: {', '.join(few)}")
    runs = {job: len(by_run(of_job)) for job, of_job in by_job(finished(entries)).items()}
    if once := [job for job, count in runs.items() if count == 1]:
        notes.append(
            "measured in one run, which does not show how much runs vary, so there is no interval: "
            f"{', '.join(once)}; use `--repeats {FEWEST_RUNS}` or more"
        )
    if shaky := [job for job, count in runs.items() if 2 <= count < FEWEST_RUNS]:
        notes.append(
            f"these intervals are over fewer than {FEWEST_RUNS} runs and may be too narrow, because that is too few to "
            f"show whether the machine has two speeds: {', '.join(shaky)}"
        )
    partly = [
        job
        for job, of_job in by_job(entries).items()
        if any({entry.ok for entry in of_run} == {True, False} for of_run in by_run(of_job).values())
    ]
    if partly:
        notes.append(
            "a copy failed while others continued with more of the machine; their rates count: " + ", ".join(partly)
        )
    hosts = sorted({entry.hostname for entry in entries if entry.hostname})
    if len(hosts) > 1:
        notes.append(f"measured on {len(hosts)} machines of one kind: {', '.join(hosts)}")
    flags = Counter(flag for entry in entries for flag in entry.flags)
    return notes + [f"{n} result{'s are' if n > 1 else ' is'} flagged: {text}" for text, n in flags.items()]


def described(entries: Sequence[ReportEntry]) -> dict[str, str]:
    """Return the conditions that all entries share, where they are known; then the machine's name, its driver and
    system, the dates."""
    shared: dict[str, str] = {}
    for name in dict.fromkeys(key for entry in entries for key in entry.conditions):
        values = {entry.conditions.get(name, UNKNOWN) for entry in entries}
        if len(values) == 1 and values != {UNKNOWN}:
            shared[name] = values.pop()
    for name, attribute in (("host", "hostname"), ("driver", "driver")):
        if known := sorted({getattr(entry, attribute) for entry in entries} - {""}):
            shared[name] = ", ".join(known)
    systems: dict[str, set[str]] = {}
    for part in {part for entry in entries for part in entry.system.split("; ")}:
        systems.setdefault(part.partition(": ")[0], set()).add(part.partition(": ")[2])
    shared |= {name: "; ".join(sorted(found)) for name, found in sorted(systems.items()) if name}
    for name in ("torch", "dnnsuite", "commit"):
        found = {entry.versions.get(name, "") for entry in entries} - {""}
        if found:
            shared[name] = ", ".join(sorted(found))
    if days := sorted({entry.started[:10] for entry in entries if entry.started}):
        shared["measured"] = " to ".join(dict.fromkeys([days[0], days[-1]]))
    return shared


# What a reader of the conditions looks for: where it is in no record, that is said.
_WANTED = (
    "measured", "host", "processor", "GPUs", "torch", "dnnsuite", "commit", "preset", "precision",
    "data",
)  # fmt: skip
NOT_RECORDED = "not recorded"


def _with_gaps(entries: Sequence[ReportEntry], differing: Mapping[str, object]) -> dict[str, str]:
    """Return the conditions, those that a reader looks for first; several values where entries differ, a word for
    none."""
    machine = described(entries)
    for name in _WANTED:
        found = {entry.conditions.get(name, UNKNOWN) for entry in entries} - {UNKNOWN}
        machine.setdefault(name, "; ".join(sorted(found)) or NOT_RECORDED)
    first = [name for name in _WANTED if name not in differing]
    return {name: machine[name] for name in [*first, *machine] if name not in differing}


_OF_JOBS = (
    "precision", "preset", "data", "settings", "batches from", "skipped steps", "page cache", "batch size",
)  # fmt: skip


def _differing(entries: Sequence[ReportEntry]) -> dict[str, dict[str, list[str]]]:
    """Conditions that jobs do not share and that a reader must know: the jobs of each value."""
    found: dict[str, dict[str, dict[str, None]]] = {name: {} for name in _OF_JOBS}
    for entry in finished(entries):
        for name, values in found.items():
            values.setdefault(entry.conditions.get(name, UNKNOWN), {})[entry.job] = None
    return {
        name: {value: list(jobs) for value, jobs in values.items()} for name, values in found.items() if len(values) > 1
    }


def plain(value: Any) -> Any:
    """Convert a value for JSON: a table becomes a list of rows, a number that is not finite becomes None."""
    if hasattr(value, "reset_index"):
        return plain(value.reset_index().to_dict("records"))
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
