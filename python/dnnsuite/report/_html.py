# SPDX-License-Identifier: MIT
"""A report as one HTML file that needs nothing else: no script, no font, no network."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from .. import __version__, plots
from .._files import replacing
from .._lazy import pandas
from .._runs.record import Moment
from .._runs.words import printable
from ..errors import Unavailable
from ._report import SuiteReport
from ._text import definitions, shown, style_score, style_seed, value_of, where

_TEMPLATE = Path(__file__).with_name("page.html.j2")
# Columns of the summary that the page shows as rates, and as variance.
_RATES = [
    "runs", "copies", "unit", "rate_per_s", "low_per_s", "high_per_s", "machine_per_s", "with_loader_per_s", "failed",
]  # fmt: skip
# Columns in words, for a reader who has not seen the command's tables.
_WORDS = {
    "rate_per_s": "one copy, /s", "low_per_s": "from", "high_per_s": "to (95 %)", "machine_per_s": "machine, /s",
    "with_loader_per_s": "with loader, /s", "between_runs_pct": "between runs",
    "between_devices_pct": "between devices", "cost_per_million": "per million items", "joules_per_item": "J per item",
    "alone_per_s": "alone, /s", "shared_per_s": "shared, /s", "machine_gain": "machine gains",
}  # fmt: skip
_VARIANCE = ["runs", "between_runs_pct", "between_devices_pct", "flags"]


def html(report: SuiteReport) -> str:
    """Render the whole report as an HTML page. Everything in it that came from a file is escaped."""
    import jinja2

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    page = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    summary = report.summary
    rates = summary[[name for name in _RATES if summary[name].notna().any()]]
    # Definitions name other columns as the page does.
    named = re.compile(rf"\b({'|'.join(_WORDS)})\b")
    meanings = {
        _WORDS.get(name, name): named.sub(lambda found: f"“{_WORDS[found[0]]}”", said)
        for name, said in definitions(report).items()
    }
    return printable(
        page.render(
            report=report,
            shown=shown,
            where=where,
            value_of=value_of,
            chart=chart(report),
            counts=_counts(report),
            disturbed=_disturbed(report),
            rates=rates,
            against=_against(report),
            variance=summary[_VARIANCE],
            seed=style_seed(report),
            score=style_score(report),
            prices=report.prices,
            words=_WORDS,
            definitions=meanings,
            made=f"dnnsuite {__version__}, {Moment.now().utc[:10]}",
        )
    )


def _counts(report: SuiteReport) -> str:
    """Numbers behind the verdict."""
    measured = sum(1 for runs in report.summary["runs"] if runs)
    failed = sum(len(entries) for entries in report.failures.values())
    compared = int(report.seed["diff"].notna().sum())
    against = ", compared with no target: --gpu-model names one"
    if report.target:
        against = f", {compared} compared with {report.target}, {len(report.below)} of them below it"
    return f"{measured} of {len(report.summary)} jobs measured{against}, {failed} executions failed"


def _disturbed(report: SuiteReport) -> str:
    """Executions that something disturbed, and by what; empty if there are none."""
    flagged = [entry for entry in report.entries if entry.flags]
    if not flagged:
        return ""
    kinds = Counter(flag for entry in flagged for flag in dict.fromkeys(entry.flags))
    said = ", ".join(f"{kind} ({count})" for kind, count in kinds.most_common())
    return f"{len(flagged)} of {len(report.entries)} executions, which are kept: {said}"


def _against(report: SuiteReport) -> pandas.DataFrame:
    """Unit, target, result, deviation and difference of each job, with what to make of them."""
    seed = report.seed
    said = [
        "not compared" if str(job) in report.uncompared
        else "too few runs" if math.isnan(row["sd"])
        else "no target" if math.isnan(row["diff"])
        else "reached" if row["diff"] >= 0 else "below"
        for job, row in seed.iterrows()
    ]  # fmt: skip
    units = {entry.job: entry.seed_unit for entry in report.entries}
    table = seed.assign(verdict=said)
    table.insert(0, "unit", [units.get(str(job), "") for job in seed.index])
    return table


def chart(report: SuiteReport) -> str:
    """Return an SVG of each job's rate over its target, or, without a target, of its 95 % interval; "" where nothing
    is."""
    rows = _against_target(report.seed) if report.target else _intervals(report.summary)
    if not rows:
        return ""
    # Made without pyplot, whose state is the process's.
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 0.6 + 0.28 * len(rows)), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    names, values = [name for name, *_ in rows], [value for _, value, *_ in rows]
    errors = [[below for _, _, below, _ in rows], [above for *_, above in rows]]
    axes.barh(names, values, xerr=errors, color="#4c78a8", ecolor="#1b1f24", height=0.65)
    axes.axvline(1.0, color="#b42318", linewidth=1)
    # A wide interval (two runs that disagree) must not flatten the bars.
    axes.set_xlim(0, min(axes.get_xlim()[1], 2 * max(values)))
    axes.invert_yaxis()
    axes.set_xlabel("rate / target" if report.target else "rate / its mean, with the 95 % interval")
    return plots.svg(figure)


def _against_target(table: pandas.DataFrame) -> list[tuple[str, float, float, float]]:
    """Return (job, rate / target, its deviation below and above)."""
    # Of these rows alone: a table without any would take those of a longer column.
    kept = table[table["diff"].notna()]
    kept = kept.assign(spread=kept["sd"] / kept["target"])
    return [(str(job), 1 + row["diff"], row["spread"], row["spread"]) for job, row in kept.iterrows()]


def _intervals(table: pandas.DataFrame) -> list[tuple[str, float, float, float]]:
    """Return (job, 1, how far the interval goes below and above), as shares of the rate."""
    known = table[table["low_per_s"].notna() & table["high_per_s"].notna()]
    return [
        (str(job), 1.0, max(0.0, 1 - row["low_per_s"] / row["rate_per_s"]), row["high_per_s"] / row["rate_per_s"] - 1)
        for job, row in known.iterrows()
    ]


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
_TIMEOUT_S = 120


def browser() -> str | None:
    """Path of the first browser that prints without a window, or of `$DNNSUITE_BROWSER`; None if there is none."""
    named = os.environ.get("DNNSUITE_BROWSER")
    return next(filter(None, map(shutil.which, (named,) if named else BROWSERS)), None)


def print_pdf(page: str, path: Path) -> None:
    """Print an HTML page to a PDF file. The file is complete or absent, and nothing is fetched from a network.

    Raises:
        Unavailable: there is no browser, or it cannot print.
        OutputError: the file cannot be written.
    """
    program = browser()
    if program is None:
        raise Unavailable(
            "a browser that prints the page to PDF",
            f"{', '.join(BROWSERS)} on the PATH",
            "install chromium, or write .html and print that",
        )
    with tempfile.TemporaryDirectory() as folder, replacing(path) as temporary:
        source, made = Path(folder, "page.html"), Path(folder, "page.pdf")
        source.write_text(page, encoding="utf-8")
        # Root, as in a container, has no sandbox; the page is ours, without scripts.
        options = ["--headless", "--disable-gpu", "--no-pdf-header-footer", f"--user-data-dir={folder}/profile"]
        options += ["--no-sandbox"] if os.geteuid() == 0 else []
        command = [program, *options, f"--print-to-pdf={made}", source.as_uri()]
        try:
            said = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"a PDF of the page: {program} failed ({error})") from error
        if not made.is_file():
            last = (said.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise Unavailable(f"a PDF of the page: {program} ended with {said.returncode}: {last}")
        shutil.copyfile(made, temporary)
