# SPDX-License-Identifier: MIT
"""Two machines side by side: speed, cost and energy of each job on the whole machine, and the numbers that decide."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import plots
from .._runs.words import printable
from .._shown import aligned, interval, number, rate
from ..errors import InvalidArgument
from ..results.comparison import Compared, overall
from ..results.intervals import weighted_mean
from ._costs import Costs, gpu_watts, per_million
from ._entries import entries_of, finished, rows_of_report
from ._report import described, plain
from .comparison import weighted

if TYPE_CHECKING:
    import pandas as pd

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
    import pandas as pd

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
