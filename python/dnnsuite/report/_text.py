# SPDX-License-Identifier: MIT
"""A report in plain text, as the original suite prints it, and in Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .._lazy import pandas
from .._runs.words import printable
from .._shown import aligned, markdown_rows, number, percent, ratio
from ._entries import ReportEntry
from ._report import SuiteReport
from ._score import Score, Statistic


def _fraction(value: float) -> str:
    return percent(100 * value)


def _spread(value: float) -> str:
    """Return a percentage with two decimals: runs of a quiet machine differ by a few tenths."""
    return f"{value:.2f} %" if math.isfinite(value) else "-"


_SAME_FORMAT: dict[Callable[[Any], str], str] = {
    number: "rate_per_s low_per_s high_per_s alone_per_s shared_per_s target mean sd machine_per_s with_loader_per_s"
    " cost_per_million joules_per_item result",
    ratio: "perf perf_tgt slowdown low high machine_gain",
    _spread: "between_runs_pct between_devices_pct",
    _fraction: "sd% sd%_tgt",
    lambda value: percent(100 * value, signed=True): "diff",
    lambda ok: "PASS" if ok else "FAIL": "perf_pass sd%_pass",
}
FORMATS = {name: form for form, names in _SAME_FORMAT.items() for name in names.split()}


def shown(table: pandas.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table as text, its index first."""
    head = [str(table.index.name or ""), *map(str, table.columns)]
    # By columns: a row of a table is of one type, and would make counts fractions.
    cells = [list(map(FORMATS.get(str(name), str), table[name].tolist())) for name in table.columns]
    rows = [list(row) for row in zip(map(str, table.index), *cells, strict=True)]
    return head, rows


def _plain_table(table: pandas.DataFrame) -> str:
    head, rows = shown(table)
    return "\n".join(aligned([head, *rows]))


def _markdown_table(table: pandas.DataFrame) -> str:
    head, rows = shown(table)
    return "\n".join(markdown_rows([head, ["---", *["---:"] * (len(head) - 1)], *rows]))


def _statistics(report: SuiteReport) -> str:
    """Return the original's three lines; of too few runs to pass or fail the last column is `n/a`."""
    few = report.verdict == "NOT ENOUGH RUNS"
    out = ["Statistics               |     Value | Pass |", "-------------------------|-----------|------|"]
    for line in report.statistics:
        passed = "n/a" if few and not line.passed else str(line.passed)
        out.append(f"{line.name:<24} : {value_of(line):<9} | {passed:<5}|")
    return "\n".join(out)


def _why(report: SuiteReport) -> list[str]:
    """Reasons for a FAIL, as items of a list."""
    if report.verdict != "FAIL":
        return []
    found = [f"{kind}: {len(entries)}, listed below" for kind, entries in report.failures.items()]
    found += [f"target missed: {job}" for job in report.missed]
    found += [
        " ".join(filter(None, (line.name, value_of(line), f"({line.definition})")))
        for line in report.statistics
        if not line.passed
    ]
    return [f"- {reason}" for reason in found]


def value_of(line: Statistic) -> str:
    """Return the value of a line of the summary, as the original shows it."""
    if line.value is None:
        return ""
    return f"{line.value:+.4f} {line.unit or ' '}" if math.isfinite(line.value) else "n/a"


def where(entry: ReportEntry) -> str:
    """Name an execution in words."""
    device = f", device {entry.device}" if entry.device else ""
    return f"{entry.job}, run {entry.run}{device}"


def style_seed(report: SuiteReport) -> str:
    """Render the table and the statistics in the format of the original's README."""
    if not report.statistics:
        return "the table of the original suite needs runs of a suite, and there are none"
    kept = report.seed[report.seed["sd"].notna()]
    if report.target is None:
        kept = kept.drop(columns=["target", "diff"])
    with pandas.option_context("display.max_rows", None, "display.max_columns", None, "display.width", 1000):
        table = str(kept) if len(kept) else "no job was measured in enough runs"
    return printable("\n".join([table, "--", "", _statistics(report), "--"]))


def style_score(report: SuiteReport) -> str:
    """Render the table and the score in the format of the original's last version."""
    if report.score is None or report.scored is None:
        return (
            "no score: nothing here may be compared with the target; the notes say why"
            if report.target and report.uncompared
            else "no score without a target: name one with --gpu-model"
        )
    return printable("\n".join([_plain_table(report.scored), "", *_score_lines(report.score)]))


def _score_lines(score: Score) -> list[str]:
    lines = [
        f"Well functioning score (BF):     {score.well_functioning:.2f}"
        f"   ({score.failures} failures / {score.results} results)",
        f"Minimal performance score (PM):  {score.minimal_performance:.2f}",
        f"Standard deviation score (ST):   {score.stability:.2f}",
        f"Mean performance (geomean) (PG): {score.mean_performance:.2f}",
        f"Score (BF(2PM + ST + 5PG)):      {score.value:.2f}",
    ]
    if score.price:
        points = score.price_per_point
        lines += [
            f"Price:                           {score.price:.2f}",
            f"RPP (Price/Score):               {'n/a' if points is None else f'{points:.2f}'}",
        ]
    return lines


def _sections(report: SuiteReport, table: Callable[[pandas.DataFrame], str]) -> list[tuple[str, str]]:
    """Title and body of each part after the original's."""
    parts: list[tuple[str, Any]] = [
        ("Rates", report.summary),
        ("Learned, on held-out data", "\n".join(f"{job}: {said}" for job, said in report.learned.items())),
        ("Devices, as shares of the fastest", report.devices.map(_fraction) if len(report.devices) else None),
        ("Score", style_score(report) if report.score is not None else None),
        ("Training to a target", report.to_target),
        ("What sharing costs", report.interference),
        (f"Cost and energy {report.prices.currency}".strip(), report.costs),
        ("Not run", ", ".join(report.not_run)),
    ]
    failed = [
        f"{kind}: {where(entry)}: {entry.message} ({entry.path})"
        for kind, entries in report.failures.items()
        for entry in entries
    ]
    facts = [f"{name}: {value}" for name, value in report.machine.items()]
    facts += [
        f"{name}, by job: " + "; ".join(f"{value} ({', '.join(jobs)})" for value, jobs in values.items())
        for name, values in report.differing.items()
    ]
    parts += [
        ("Failures", "\n".join(failed) or "none"),
        ("Isolation obtained", ", ".join(f"{level} {count}" for level, count in report.isolation.items())),
        ("Machine and conditions", "\n".join(facts)),
        ("Notes", "\n".join(report.notes)),
        ("Damaged records, left out", "\n".join(report.problems)),
        ("Definitions", "\n".join(f"{name}: {meaning}" for name, meaning in definitions(report).items())),
    ]
    shown_parts = [(title, body if isinstance(body, str | None) else table(body)) for title, body in parts]
    return [(title, body) for title, body in shown_parts if body]


def definitions(report: SuiteReport) -> dict[str, str]:
    """Meaning of each column and statistic that the report shows."""
    defined = {**report.summary.attrs["definitions"]}
    for table in (report.to_target, report.interference, report.costs):
        if table is not None:
            defined |= table.attrs["definitions"]
    return defined | {line.name: line.definition for line in report.statistics}


def text(report: SuiteReport) -> str:
    """Render the whole report as text for a terminal."""
    parts = [
        report.title,
        "=" * len(report.title),
        "",
        f"verdict: {report.headline}",
        *_why(report),
        "",
        style_seed(report),
    ]
    for title, body in _sections(report, _plain_table):
        parts += ["", title, "-" * len(title), body]
    return printable("\n".join(parts)) + "\n"


def markdown(report: SuiteReport) -> str:
    """Render the whole report as Markdown."""
    parts = [
        f"# {report.title}",
        "",
        f"**{report.headline}**",
        *("", *_why(report)),
        "",
        "```",
        style_seed(report),
        "```",
    ]
    for title, body in _sections(report, _markdown_table):
        prose = body if body.startswith("|") else "```\n" + body + "\n```"
        parts += ["", f"## {title}", "", prose]
    return printable("\n".join(parts)) + "\n"
