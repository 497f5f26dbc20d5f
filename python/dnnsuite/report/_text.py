# SPDX-License-Identifier: MIT
"""A report in plain text, as the original suite prints it, and in Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._runs.words import printable
from .._shown import number, percent, ratio
from ._entries import ReportEntry
from ._report import SuiteReport
from ._score import Score, Statistic

if TYPE_CHECKING:
    import pandas


def _fraction(value: float) -> str:
    return percent(100 * value)


def _spread(value: float) -> str:
    """Return a percentage with two decimals: runs of a quiet machine differ by a few tenths."""
    return f"{value:.2f} %" if math.isfinite(value) else "-"


FORMATS: dict[str, Callable[[Any], str]] = {
    "rate_per_s": number,
    "low_per_s": number,
    "high_per_s": number,
    "alone_per_s": number,
    "shared_per_s": number,
    "between_runs_pct": _spread,
    "between_devices_pct": _spread,
    "target": number,
    "mean": number,
    "sd": number,
    "perf": ratio,
    "perf_tgt": ratio,
    "sd%": _fraction,
    "sd%_tgt": _fraction,
    "slowdown": ratio,
    "low": ratio,
    "high": ratio,
    "machine_gain": ratio,
    "machine_per_s": number,
    "with_loader_per_s": number,
    "cost_per_million": number,
    "joules_per_item": number,
    "result": number,
    "diff": lambda value: percent(100 * value, signed=True),
    "perf_pass": lambda ok: "PASS" if ok else "FAIL",
    "sd%_pass": lambda ok: "PASS" if ok else "FAIL",
}


def shown(table: pandas.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table as text, its index first."""
    head = [str(table.index.name or ""), *map(str, table.columns)]
    # By columns: a row of a table is of one type, and would make counts fractions.
    cells = [list(map(FORMATS.get(str(name), str), table[name].tolist())) for name in table.columns]
    rows = [list(row) for row in zip(map(str, table.index), *cells, strict=True)]
    return head, rows


def _plain_table(table: pandas.DataFrame) -> str:
    head, rows = shown(table)
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in [head, *rows]
    ]
    return "\n".join(line.rstrip() for line in lines)


def _markdown_table(table: pandas.DataFrame) -> str:
    head, rows = shown(table)
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in [head, rule, *rows])


def _statistics(report: SuiteReport) -> str:
    """Return the original's three lines; of too few runs to pass or fail the last column is `n/a`."""
    few = report.verdict == "NOT ENOUGH RUNS"
    out = ["Statistics               |     Value | Pass |", "-------------------------|-----------|------|"]
    for line in report.statistics:
        passed = "n/a" if few and not line.passed else str(line.passed)
        out.append(f"{line.name:<24} : {value_of(line):<9} | {passed:<5}|")
    return "\n".join(out)


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
    """Return the table and the statistics of the original's README."""
    import pandas

    if not report.statistics:
        return "the table of the original suite needs runs of a suite, and there are none"
    kept = report.seed[report.seed["sd"].notna()]
    if report.target is None:
        kept = kept.drop(columns=["target", "diff"])
    with pandas.option_context("display.max_rows", None, "display.max_columns", None, "display.width", 1000):
        table = str(kept) if len(kept) else "no job was measured in enough runs"
    return printable("\n".join([table, "--", "", _statistics(report), "--"]))


def style_score(report: SuiteReport) -> str:
    """Return the table and the score of the original's last version."""
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
    found = [("Rates", table(report.summary))]
    if report.learned:
        found.append(("Learned, on held-out data", "\n".join(f"{job}: {said}" for job, said in report.learned.items())))
    if len(report.devices):
        found.append(("Devices, as shares of the fastest", table(report.devices.map(_fraction))))
    if report.score is not None:
        found.append(("Score", style_score(report)))
    if report.to_target is not None:
        found.append(("Training to a target", table(report.to_target)))
    if report.interference is not None:
        found.append(("What sharing costs", table(report.interference)))
    if report.costs is not None:
        found.append((f"Cost and energy {report.prices.currency}".strip(), table(report.costs)))
    if report.not_run:
        found.append(("Not run", ", ".join(report.not_run)))
    failed = [
        f"{kind}: {where(entry)}: {entry.message} ({entry.path})"
        for kind, entries in report.failures.items()
        for entry in entries
    ]
    found.append(("Failures", "\n".join(failed) or "none"))
    obtained = ", ".join(f"{level} {count}" for level, count in report.isolation.items())
    found.append(("Isolation obtained", obtained))
    facts = [f"{name}: {value}" for name, value in report.machine.items()]
    facts += [
        f"{name} differs between jobs: " + "; ".join(f"{value} ({', '.join(jobs)})" for value, jobs in values.items())
        for name, values in report.differing.items()
    ]
    found.append(("Machine and conditions", "\n".join(facts)))
    if report.notes:
        found.append(("Notes", "\n".join(report.notes)))
    if report.problems:
        found.append(("Damaged records, left out", "\n".join(report.problems)))
    defined = definitions(report).items()
    found.append(("Definitions", "\n".join(f"{name}: {meaning}" for name, meaning in defined)))
    return found


def definitions(report: SuiteReport) -> dict[str, str]:
    """Meaning of each column and statistic that the report shows."""
    defined = {**report.summary.attrs["definitions"]}
    for table in (report.to_target, report.interference, report.costs):
        if table is not None:
            defined |= table.attrs["definitions"]
    return defined | {line.name: line.definition for line in report.statistics}


def text(report: SuiteReport) -> str:
    """Render the whole report for a terminal."""
    parts = [report.title, "=" * len(report.title), "", f"verdict: {report.headline}", "", style_seed(report)]
    for title, body in _sections(report, _plain_table):
        parts += ["", title, "-" * len(title), body]
    return printable("\n".join(parts)) + "\n"


def markdown(report: SuiteReport) -> str:
    """Render the whole report as Markdown."""
    parts = [f"# {report.title}", "", f"**{report.headline}**", "", "```", style_seed(report), "```"]
    for title, body in _sections(report, _markdown_table):
        prose = body if body.startswith("|") else "```\n" + body + "\n```"
        parts += ["", f"## {title}", "", prose]
    return printable("\n".join(parts)) + "\n"
