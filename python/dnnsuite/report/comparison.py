# SPDX-License-Identifier: MIT
"""A comparison of runs for a terminal, a pull request and CI."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .._runs.words import printable
from .._shown import aligned, interval, markdown_rows, percent, rate
from ..errors import InvalidArgument, did_you_mean
from ..results.comparison import VERDICTS, Compared, overall

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
    return [
        point.point,
        rate(point.baseline, point.unit),
        rate(point.candidate, point.unit),
        percent(point.change_pct, signed=True),
        _change_interval(point),
        f"{point.runs[0]}, {point.runs[1]}",
        f"{_SIGNS.get(point.verdict, '!')} {point.verdict}",
    ]


def _change_interval(point: Compared) -> str:
    found = interval(100 * (point.low - 1), 100 * (point.high - 1), "{:+.1f}".format)
    return f"{found.strip()} %" if found else "-"


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
