# SPDX-License-Identifier: MIT
"""`dnnsuite compare A B`: is B faster, slower or the same as A? `dnnsuite baseline`: results in one file, against which
later ones are checked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from .._files import write_json, write_text
from .._lazy import pandas as pd
from ..errors import Error, InvalidArgument
from ._late import comparison, plots, reports, results
from ._options import Files, Json, Text, Texts
from ._status import FAILED, UNDECIDED, USAGE, say, tell

Outs = Annotated[Files, "Also write a .md, .txt, .csv, .json, .html, .png, .pdf or .svg file; repeatable."]
Threshold = Annotated[float, "Smallest change that counts, as a fraction."]
MetricName = Annotated[str, "Quantity to compare: a rate or a time of whole runs."]
Across = Annotated[Texts, "What differs on purpose: machine, software, or a condition; repeatable."]
FailOnOption = Annotated[Texts, "Exit with 1 if a point is slower:5%, failed, missing, inconclusive, ...; repeatable."]
_FIGURES = (".png", ".pdf", ".svg")
_WRITERS = (".md", ".txt", ".csv", ".json", ".html", *_FIGURES)


def compare(
    directories: Annotated[
        list[Path], "The baseline, then what to compare with it: outputs of runs, or saved baselines."
    ],
    fail_on: FailOnOption = None,
    threshold: Threshold = 0.01,
    metric: MetricName = "throughput",
    method: Annotated[str, "Compare runs in pairs, or all with all."] = "auto",
    across: Across = None,
    name: Annotated[Text, "Name of the suite or workflow.  [all]"] = None,
    cost_per_hour: Annotated[Text, "Price per hour of each of two machines."] = None,
    watts: Annotated[Text, "Power of each of two machines."] = None,
    currency: Annotated[str, "Currency of the prices, e.g. EUR."] = "",
    markdown: Annotated[bool, "Print Markdown, for a pull request."] = False,
    out: Outs = None,
    as_json: Json = False,
) -> int:
    """Compare runs: faster, slower, the same, or inconclusive.

    Each job or point gets a verdict; an inconclusive one says how many more runs would decide it. Runs measured under
    different conditions are not compared: the reasons are printed, and the exit status is 2. If a condition is what
    you want to compare, name it with --across. With prices or power of two machines, or --out page.html, cost and
    energy are compared too.
    """
    if len(directories) < 2:
        raise InvalidArgument("give two or more directories: the baseline first, then what to compare with it")
    tables = [results.load(directory, name=name) for directory in directories]
    return report_comparison(
        tables,
        [str(directory) for directory in directories],
        {"threshold": threshold, "metric": metric, "method": method},
        across or (),
        fail_on or (),
        "json" if as_json else "markdown" if markdown else "text",
        out or (),
        reports.costs_of_two(cost_per_hour, watts, currency),
    )


_FILE = Path("dnnsuite-baseline.csv")
_File = Annotated[Path, typer.Option("--baseline", "-b", help="File of the baseline.")]
_Directories = Annotated[list[Path], "Outputs of runs of any kind."]


def save(
    directories: _Directories,
    to: _File = _FILE,
    name: Annotated[Text, "Name of the suite or workflow.  [all]"] = None,
    replace: Annotated[bool, "Overwrite an existing baseline."] = False,
    as_json: Json = False,
) -> int:
    """Write the results of runs to a CSV file.

    `check` and `compare` read it, and you can commit it to a repository. Runs that must not be pooled (two machines,
    two versions) are refused.
    """
    if to.suffix != ".csv":
        raise InvalidArgument(f"--baseline {to}: the name must end in .csv")
    if to.exists() and not replace:
        raise InvalidArgument(f"{to} already exists; give --replace, or another --baseline")
    table, left_out = results.without_odd(results.load(*directories, name=name))
    for sentence in left_out:
        say(sentence)
    results.refuse_unlike(table)
    measured = results.pool.ended_well(table)
    if measured.empty:
        raise InvalidArgument(
            f"{', '.join(map(str, directories))}: no run ended well in all its copies; there is nothing to compare with"
        )
    results.save_csv(table, to)
    jobs = measured["job"].nunique()
    runs = measured["run_id"].nunique()
    if as_json:
        print(json.dumps({"baseline": str(to), "runs": runs, "jobs": jobs}))
    else:
        tell(f"{to}: {runs} runs of {jobs} job{'s' if jobs > 1 else ''}")
    return 0


def check(
    directories: _Directories,
    baseline: _File = _FILE,
    fail_on: FailOnOption = None,
    threshold: Threshold = 0.01,
    metric: MetricName = "throughput",
    across: Across = None,
    name: Annotated[Text, "Name of the suite or workflow.  [all]"] = None,
    markdown: Annotated[bool, "Print Markdown, for a pull request."] = False,
    out: Outs = None,
    as_json: Json = False,
) -> int:
    """Compare runs with the baseline; fail if one is slower.

    The exit status is 1 if a point is slower by 5 % or more, or failed; --fail-on sets other conditions. It is 3 if
    of no point it is known whether it is: there are too few runs, or none of the same job.
    """
    if not baseline.is_file():
        raise InvalidArgument(f"{baseline}: no such file; make it with: dnnsuite baseline save DIRECTORY -b {baseline}")
    return report_comparison(
        [results.load(baseline, name=name), results.load(*directories, name=name)],
        [str(baseline), ", ".join(map(str, directories))],
        {"threshold": threshold, "metric": metric},
        across or (),
        fail_on or ("slower:5%", "failed"),
        "json" if as_json else "markdown" if markdown else "text",
        out or (),
    )


def report_comparison(
    tables: Sequence[pd.DataFrame],
    names: Sequence[str],
    how: dict[str, Any],
    across: Sequence[str],
    fail_on: Sequence[str],
    style: str,
    out: Sequence[Path],
    costs: Sequence[reports.Costs] = (),
) -> int:
    """Compare the first of some tables with each of the others; print, write, and return the exit status.

    Raises:
        InvalidArgument: a bad option.
        UnlikeRuns: nothing at all may be compared.
    """
    failing = reports.fail_on(fail_on)
    for path in out:
        if path.suffix not in _WRITERS:
            raise InvalidArgument(f"--out {path}: the name must end in one of {', '.join(_WRITERS)}")
    for table in tables:
        for problem in table.attrs["problems"]:
            say(problem)
    for name, table in zip(names[1:], tables[1:], strict=True):
        if shared := len({*tables[0]["run_id"]} & {*table["run_id"]}):
            say(f"{shared} runs of {name} are the baseline's own: compared with itself it is the same")
    may_differ = comparison.across(across)
    found = [comparison.compare(tables[0], table, ignoring=may_differ, **how) for table in tables[1:]]
    _refuse_if_nothing_is_like(found)
    machines = None
    if any(each.per_hour or each.watts for each in costs) or any(path.suffix == ".html" for path in out):
        if len(tables) != 2:
            raise InvalidArgument(f"cost, energy and a page are for two machines, and {len(tables)} are named")
        prices = costs or reports.costs_of_two(None, None, "")
        machines = reports.machines((tables[0], tables[1]), found[0], (names[0], names[1]), prices)
    written = _Written(found, names, failing, machines)
    print(written.text(style), end="")
    for path in out:
        _write(path, written)
    points = [point for each in found for point in each]
    if any(each.meets(point) for point in points for each in failing):
        return FAILED
    if any(point.verdict == "unlike" for point in points):
        return USAGE
    if failing and not any(all(each.settled(point) for each in failing) for point in points):
        say("nothing is decided: of no point is it known whether it fails the check; measure more repeats")
        return UNDECIDED
    return 0


def _refuse_if_nothing_is_like(found: Sequence[Sequence[results.Compared]]) -> None:
    points = [point for each in found for point in each if point.verdict != "missing"]
    if points and all(point.verdict == "unlike" for point in points):
        raise results.UnlikeRuns(
            f"these runs cannot be compared: {points[0].point}: {'; '.join(points[0].reasons)}; if that is what you "
            "compare, say so: --across machine, --across software, or the name of the condition"
        )


@dataclass(frozen=True)
class _Written:
    """A comparison as text, Markdown or JSON."""

    found: Sequence[list[results.Compared]]
    names: Sequence[str]
    failing: Sequence[reports.FailOn]
    machines: reports.Machines | None

    @property
    def _parts(self) -> list[tuple[list[results.Compared], tuple[str, str]]]:
        return [(points, (self.names[0], other)) for points, other in zip(self.found, self.names[1:], strict=True)]

    def text(self, style: str) -> str:
        """Render as `text`, `markdown` or `json`."""
        if style == "json":
            return json.dumps(self.plain()) + "\n"
        form = getattr(reports, f"comparison_{style}")
        said = "\n".join(form(points, names, self.failing) for points, names in self._parts)
        if self.machines is None:
            return said
        own = self.machines.text()
        return f"{said}{own}" if style == "text" else f"{said}\n```\n{own.lstrip()}```\n"

    def plain(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        found: dict[str, Any] = reports.plain({
            "comparisons": [
                {
                    "baseline": names[0],
                    "candidate": names[1],
                    "points": [point.to_dict() for point in points],
                    "overall": dict(zip(("points", "ratio", "low", "high"), comparison.overall(points), strict=True)),
                    "failing": [point.point for point in points if any(each.meets(point) for each in self.failing)],
                }
                for points, names in self._parts
            ],
            **({"machines": self.machines.to_dict()} if self.machines else {}),
        })  # fmt: skip
        return found

    def table(self) -> pd.DataFrame:
        """One row for each point of each candidate."""
        rows = [
            {"candidate": names[1], **point.to_dict(), "reasons": "; ".join(point.reasons)}
            for points, names in self._parts
            for point in points
        ]
        return pd.DataFrame(rows)

    def all_points(self) -> list[results.Compared]:
        """List the points of all candidates, with the candidate's name where there are several."""
        if len(self._parts) == 1:
            return self._parts[0][0]
        return [
            replace(point, point=f"{Path(names[1]).name}: {point.point}")
            for points, names in self._parts
            for point in points
        ]


def _write(path: Path, written: _Written) -> None:
    if path.suffix == ".json":
        write_json(path, written.plain())
    elif path.suffix == ".html":
        assert written.machines is not None
        write_text(path, written.machines.html())
    elif path.suffix == ".csv":
        results.save_csv(written.table(), path)
    elif path.suffix in _FIGURES:
        try:
            plots.save(plots.comparison(written.all_points()), path)
        except ImportError as error:
            raise Error(f"--out {path}: a figure needs matplotlib ({error})") from error
    else:
        write_text(path, written.text("markdown" if path.suffix == ".md" else "text"))
