# SPDX-License-Identifier: MIT
"""A report as one HTML file that needs nothing else: no script, no font, no network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import plots
from ._report import SuiteReport
from ._text import shown, style_score, style_seed, where

if TYPE_CHECKING:
    import pandas

__all__ = ["chart", "html"]

_TEMPLATE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{{ report.title }}</title>
<style>
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #1b1f24; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.verdict { display: inline-block; padding: .15rem .7rem; border-radius: .3rem; color: #fff; font-weight: 600; }
.pass { background: #1a7f37; } .fail { background: #b42318; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #d9dee3; }
th:first-child, td:first-child { text-align: left; }
pre { background: #f4f6f8; padding: .8rem; overflow-x: auto; }
dt { font-weight: 600; } dd { margin: 0 0 .3rem 1.5rem; } .scroll { overflow-x: auto; }
</style>
</head>
<body>
<h1>{{ report.title }}</h1>
<p><span class="verdict {{ 'pass' if report.passed else 'fail' }}">{{ 'PASS' if report.passed else 'FAIL' }}</span></p>
{% macro grid(table) %}{% set head, rows = shown(table) %}
<div class="scroll"><table><thead><tr>{% for cell in head %}<th>{{ cell }}</th>{% endfor %}</tr></thead>
<tbody>{% for row in rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</tbody></table></div>
{% endmacro %}
<h2>Rates</h2>
{{ grid(report.summary) }}
{{ chart | safe }}
<h2>Against the target{% if report.target %} {{ report.target }}{% endif %}</h2>
<pre>{{ seed }}</pre>
{% if report.score %}<h2>Score</h2>
<pre>{{ score }}</pre>{% endif %}
{% if report.devices | length %}<h2>Devices, as shares of the fastest</h2>
{{ grid(report.devices.map("{:.1%}".format)) }}{% endif %}
{% if report.interference is not none %}<h2>What sharing costs</h2>
{{ grid(report.interference) }}{% endif %}
<h2>Failures</h2>
{% if report.failures %}<ul>{% for kind, entries in report.failures.items() %}{% for entry in entries %}
<li><b>{{ kind }}</b>: {{ where(entry) }}: {{ entry.message }}
<code>{{ entry.path }}</code></li>{% endfor %}{% endfor %}</ul>{% else %}<p>none</p>{% endif %}
<h2>Machine and isolation</h2>
<dl>{% for name, value in report.machine.items() %}<dt>{{ name }}</dt><dd>{{ value }}</dd>{% endfor %}
<dt>isolation obtained</dt>
<dd>{% for level, count in report.isolation.items() %}{{ level }}: {{ count }} {% endfor %}</dd></dl>
{% if report.notes %}<h2>Notes</h2><ul>{% for note in report.notes %}<li>{{ note }}</li>{% endfor %}</ul>{% endif %}
{% if report.problems %}<h2>Damaged records, left out</h2>
<ul>{% for problem in report.problems %}<li>{{ problem }}</li>{% endfor %}</ul>{% endif %}
<h2>Definitions</h2>
<dl>{% for name, meaning in report.summary.attrs["definitions"].items() %}<dt>{{ name }}</dt><dd>{{ meaning }}</dd>
{% endfor %}{% for line in report.statistics %}<dt>{{ line.name }}</dt><dd>{{ line.definition }}</dd>{% endfor %}</dl>
</body>
</html>
"""


def html(report: SuiteReport) -> str:
    """The whole report. Everything in it that came from a file is escaped."""
    import jinja2

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(_TEMPLATE).render(
        report=report,
        shown=shown,
        where=where,
        chart=chart(report),
        seed=style_seed(report),
        score=style_score(report),
    )


def chart(report: SuiteReport) -> str:
    """An SVG of each job's rate over its target, or, without a target, of its 95 % interval; "" where nothing is."""
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
    """(job, rate / target, its deviation below and above)."""
    kept = table[table["diff"].notna()].assign(spread=table["sd"] / table["target"])
    return [(str(job), 1 + row["diff"], row["spread"], row["spread"]) for job, row in kept.iterrows()]


def _intervals(table: pandas.DataFrame) -> list[tuple[str, float, float, float]]:
    """(job, 1, how far the interval goes below and above), as shares of the rate."""
    known = table[table["low_per_s"].notna() & table["high_per_s"].notna()]
    return [
        (
            str(job),
            1.0,
            max(0.0, 1 - row["low_per_s"] / row["rate_per_s"]),
            row["high_per_s"] / row["rate_per_s"] - 1,
        )
        for job, row in known.iterrows()
    ]
