# SPDX-License-Identifier: MIT
"""A comparison of runs for a terminal, a pull request and CI."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import plots
from .._lazy import pandas as pd
from .._runs.words import printable
from .._shown import aligned, interval, markdown_rows, number, percent, rate
from ..errors import InvalidArgument, did_you_mean
from ..results.comparison import VERDICTS, Compared, overall
from ..results.intervals import weighted_mean
from ._entries import entries_of, finished, rows_of_report
from ._report import described, plain
from ._summary import Costs, gpu_watts, per_million

_HEAD = ("", "baseline", "candidate", "change", "95 % interval", "runs", "verdict")
_ROUNDING = 1e-9  # of a percentage: 0.9 of a speed is 10 % slower
_SIGNS = {"faster": "▲", "slower": "▼", "same": "=", "inconclusive": "?"}
_FAIL_ON = re.compile(r"(?P<verdict>[a-z]+)(?::(?P<percent>\d+(?:\.\d+)?)\s*%?)?")


@dataclass(frozen=True)
class FailOn:
    """A condition under which a comparison fails.

    Attributes:
        verdict: the verdict that fails it, for example `slower`.
        percent: smallest change that counts, for `slower` and `faster`.
    """

    verdict: str
    percent: float = 0.0

    def meets(self, found: Compared) -> bool:
        """Return True if the comparison fails on this point; for `failed`, if any run of the candidate failed there."""
        if self.verdict == "failed" and found.failed[1]:
            return True
        if found.verdict != self.verdict:
            return False
        return self.verdict not in ("slower", "faster") or abs(found.change_pct) >= self.percent - _ROUNDING

    def settled(self, found: Compared) -> bool:
        """Return True if it is certain whether the comparison fails on this point.

        An inconclusive point is settled if its interval contains no change that is large enough.
        """
        if found.verdict == "missing":
            return self.verdict == "missing"
        if found.verdict != "inconclusive" or self.verdict not in ("slower", "faster"):
            return True
        change = found.low - 1 if self.verdict == "slower" else 1 - found.high
        return 100 * change > -self.percent


def fail_on(words: Sequence[str]) -> list[FailOn]:
    """Parse conditions from a command line: `slower:5%`, `failed`, or several separated by commas.

    Raises:
        InvalidArgument: a condition is not a verdict with an optional percentage.
    """
    found = []
    for word in (part.strip() for each in words for part in each.split(",")):
        said = _FAIL_ON.fullmatch(word)
        if said is None or said["verdict"] not in VERDICTS:
            near = did_you_mean(word.partition(":")[0], VERDICTS)
            raise InvalidArgument(f"--fail-on {word}{near}: expected one of {', '.join(VERDICTS)}, e.g. slower:5%")
        if said["percent"] and said["verdict"] not in ("slower", "faster"):
            raise InvalidArgument(f"--fail-on {word}: only slower and faster have a percentage")
        found.append(FailOn(said["verdict"], float(said["percent"] or 0)))
    return found


def comparison_text(points: Sequence[Compared], names: tuple[str, str], failing: Sequence[FailOn] = ()) -> str:
    """Render a comparison as plain text: the table, followed by remarks.

    Args:
        points: verdicts, from :func:`dnnsuite.results.compare`.
        names: names of the baseline and of the candidate.
        failing: conditions under which the comparison fails.
    """
    table = aligned([_HEAD, *map(_cells, points)], left=(0, 6))
    said = [f"baseline   {names[0]}", f"candidate  {names[1]}", "", *table, ""]
    return printable("\n".join([*said, *_remarks(points, failing)])) + "\n"


def comparison_markdown(points: Sequence[Compared], names: tuple[str, str], failing: Sequence[FailOn] = ()) -> str:
    """Render a comparison as Markdown for a pull request, with slower and faster points first.

    Args:
        points: verdicts, from :func:`dnnsuite.results.compare`.
        names: names of the baseline and of the candidate.
        failing: conditions under which the comparison fails.
    """
    order = {
        verdict: i for i, verdict in enumerate(("failed", "slower", "unlike", "missing", "faster", "inconclusive"))
    }
    rows = sorted(points, key=lambda point: order.get(point.verdict, len(order)))
    bad = [point for point in points if any(each.meets(point) for each in failing)]
    title = f"### Speed: {_summary(points)}"
    table = markdown_rows([_HEAD, ("---", *["---:"] * 5, "---"), *map(_cells, rows)])
    verdict = [f"**{len(bad)} {'points fail' if len(bad) > 1 else 'point fails'} the check.**", ""] if bad else []
    about = [f"baseline `{names[0]}`, candidate `{names[1]}`", ""]
    remarks = [f"- {line}" for line in _remarks(points, failing)]
    return printable("\n".join([title, "", *verdict, *about, *table, "", *remarks])) + "\n"


def _cells(point: Compared) -> list[str]:
    within = interval(100 * (point.low - 1), 100 * (point.high - 1), "{:+.1f}".format)
    return [
        point.point,
        rate(point.baseline, point.unit),
        rate(point.candidate, point.unit),
        percent(point.change_pct, signed=True),
        f"{within.strip()} %" if within else "-",
        f"{point.runs[0]}, {point.runs[1]}",
        f"{_SIGNS.get(point.verdict, '!')} {point.verdict}",
    ]


def _overall(points: Sequence[Compared]) -> list[str]:
    """The one number of two machines or versions."""
    count, ratio, low, high = overall(points)
    if count < 2:
        return []
    within = f"95 % interval {low:.3f} to {high:.3f}" if low == low else "no interval: a job has one run"
    over = f"{weighted(points)}geometric mean over {count} jobs or points"
    return [f"{over}: {ratio:.3f} times the baseline's speed ({within})"]


def weighted(points: Sequence[Compared]) -> str:
    """Say the weights of the one number; empty where all jobs count alike."""
    if all(point.weight == 1 for point in points):
        return ""
    return f"weighted ({', '.join(f'{point.point} {point.weight:g}' for point in points if point.ratio > 0)}) "


def _summary(points: Sequence[Compared]) -> str:
    counts = [(verdict, sum(point.verdict == verdict for point in points)) for verdict in VERDICTS]
    return ", ".join(f"{count} {verdict}" for verdict, count in counts if count)


def _remarks(points: Sequence[Compared], failing: Sequence[FailOn]) -> list[str]:
    """Sentences below the table: what is missing for a verdict, why points are not compared, what fails the check."""
    found = [_summary(points), *_overall(points)]
    paired = {point.method for point in points if point.method}
    if paired:
        found.append(f"method: {' and '.join(sorted(paired))} runs, Student's t on logarithms, 95 %")
    for point in points:
        if point.verdict == "inconclusive":
            more = f"about {point.more_runs:,} more runs of each" if point.more_runs else "many more runs"
            why = f" ({point.reasons[0]})" if point.reasons else ""
            found.append(f"{point.point}: inconclusive; {more} would settle it{why}")
        elif point.verdict in ("unlike", "failed", "missing"):
            found.append(f"{point.point}: {point.verdict}: {'; '.join(point.reasons)}")
    remarks: dict[str, list[str]] = {}  # what is true of several points is said once
    for point in points:
        for remark in (*(point.reasons[1:] if point.verdict == "inconclusive" else ()), *point.remarks):
            remarks.setdefault(remark, []).append(point.point)
    found += [f"{', '.join(names)}: {remark}" for remark, names in remarks.items()]
    for each in failing:
        bad = [point.point for point in points if each.meets(point)]
        if bad:
            limit = f" by {each.percent:g} % or more" if each.percent else ""
            found.append(f"fails on {each.verdict}{limit}: {', '.join(bad)}")
    return found


_SHOWN = {"speed": "speed", "cost": "cost of an item", "energy": "energy of an item"}
# What a buyer reads first; the conditions of the runs follow.
_OF_THE_MACHINE = (
    "processor", "GPUs", "driver", "memory", "NUMA nodes", "storage", "host", "operating system", "kernel", "governor",
    "microcode", "torch", "dnnsuite", "commit", "measured",
)  # fmt: skip
_TEMPLATE = Path(__file__).with_name("machines.html.j2")


@dataclass(frozen=True)
class Machines:
    """A comparison of two machines.

    Attributes:
        names: names of the baseline and of the candidate.
        systems: facts about each of them, by name.
        points: a verdict for each job, from :func:`dnnsuite.results.compare`.
        table: a row per job, with its `unit`. Columns that begin with `a_` (baseline) and `b_` (candidate) have items
            per second, cost per million items and joules per item; `speed`, `cost` and `energy` are those of the
            candidate divided by those of the baseline.
        means: weighted geometric means of `speed`, `cost` and `energy` over the jobs; NaN if a value is unknown.
        currency: currency of the prices.
        prices: prices and power of each.
    """

    names: tuple[str, str]
    systems: tuple[dict[str, str], dict[str, str]]
    points: Sequence[Compared]
    table: pd.DataFrame
    means: dict[str, float]
    currency: str = ""
    prices: Sequence[Costs] = field(default_factory=list)

    def text(self) -> str:
        """Render the table and the means, at most 80 columns wide."""
        known = [name for name in _SHOWN if math.isfinite(self.means[name])]
        head = ["the whole machine", "A, /s", "B, /s", *(f"{name} B/A" for name in known)]
        rows = [
            [str(job)[:20], rate(row["a_per_s"], ""), rate(row["b_per_s"], ""), *(f"{row[name]:.3f}" for name in known)]
            for job, row in self.table.iterrows()
        ]
        rows.append(["geometric mean", "", "", *(f"{self.means[name]:.3f}" for name in known)])
        return (
            printable("\n".join(["", f"A  {self.names[0]}", f"B  {self.names[1]}", "", *aligned([head, *rows])])) + "\n"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; NaN becomes None."""
        names = ("names", "systems", "currency", "means")
        found: dict[str, Any] = plain({**{name: getattr(self, name) for name in names}, "jobs": self.table})
        return found

    def html(self) -> str:
        """Return a self-contained page: both machines, the decisive numbers, each job and a figure."""
        import jinja2
        from matplotlib.figure import Figure

        count, ratio, low, high = overall(self.points)
        figure = Figure(figsize=(9, 1.2 + 0.3 * len(self.points)), layout="constrained")
        plots.comparison(self.points, figure.subplots())
        page = (_TEMPLATE.parent / "page.html.j2").read_text(encoding="utf-8")
        style = re.search(r"<style>.*?</style>", page, re.S)
        environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
        return printable(
            environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
                machines=self,
                weighted=weighted(self.points),
                style=style[0] if style else "",
                chart=plots.svg(figure),
                count=count,
                ratio=ratio,
                decided=low > 1 or high < 1,
                within=interval(low, high, "{:.3f}".format),
                facts=sorted(self.systems[0] | self.systems[1], key=lambda name: name not in _OF_THE_MACHINE),
                words=_SHOWN,
                finite=math.isfinite,
                number=number,
            )
        )


def machines(
    tables: tuple[pd.DataFrame, pd.DataFrame],
    points: Sequence[Compared],
    names: tuple[str, str],
    costs: Sequence[Costs],
) -> Machines:
    """Compare two machines side by side.

    Args:
        tables: runs of the baseline and of the candidate, from :func:`dnnsuite.results.load`.
        points: their comparison, from :func:`dnnsuite.results.compare`.
        names: names of the two machines.
        costs: price per hour and power of each.
    """
    entries = [entries_of(rows_of_report(table)) for table in tables]
    copies = [{each.job: each.copies for each in finished(of_one)} for of_one in entries]
    sampled = [gpu_watts(of_one) for of_one in entries]
    rows = {}
    for point in points:
        if not point.ratio > 0:
            continue
        counts = [of_one.get(point.point, 1) for of_one in copies]
        rows[point.point] = {"unit": point.unit, "speed": point.ratio}
        for side, cost, watts, count, of_copy in zip(
            "ab", costs, sampled, counts, (point.baseline, point.candidate), strict=True
        ):  # rates of machines with other numbers of copies are those of the machines already
            whole = of_copy * (count if counts[0] == counts[1] else 1)
            power = cost.watts or watts.get(point.point, math.nan) * count
            rows[point.point] |= {
                f"{side}_per_s": whole,
                f"{side}_cost_per_million": per_million(cost, whole),
                f"{side}_joules_per_item": power / whole,
            }
    found = pd.DataFrame.from_dict(rows, orient="index")
    if found.empty:
        raise InvalidArgument("no job was measured on both machines, so there is nothing to set beside the prices")
    found.index.name = "job"
    found["cost"] = found["b_cost_per_million"] / found["a_cost_per_million"]
    found["energy"] = found["b_joules_per_item"] / found["a_joules_per_item"]
    weights = {point.point: point.weight for point in points}
    means = {
        name: math.exp(weighted_mean(map(math.log, found[name]), (weights[str(job)] for job in found.index)))
        if found[name].notna().all()
        else math.nan
        for name in _SHOWN
    }
    systems = (described(entries[0]), described(entries[1]))
    return Machines(names, systems, points, found, means, costs[0].currency, costs)


def costs_of_two(per_hour: str | None, watts: str | None, currency: str) -> list[Costs]:
    """Read the values of `--cost-per-hour 2.1,3.4` and `--watts 400,650`: first the baseline's, then the candidate's.

    Raises:
        InvalidArgument: there are not two numbers, or one is not positive.
    """
    pairs = [_two(flag, given) for flag, given in (("--cost-per-hour", per_hour), ("--watts", watts))]
    return [Costs(per_hour=pairs[0][i], watts=pairs[1][i], currency=currency) for i in range(2)]


def _two(flag: str, given: str | None) -> list[float | None]:
    if given is None:
        return [None, None]
    try:
        first, second = map(float, given.split(","))
    except ValueError:
        raise InvalidArgument(
            f"{flag} {given}: expected two numbers, for the baseline and the candidate, for example 2.1,3.4"
        ) from None
    return [first, second]
