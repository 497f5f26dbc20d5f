# SPDX-License-Identifier: MIT
"""`dnnsuite baseline`: keep the results of runs in one file, and check later ones against it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..errors import InvalidArgument
from ._options import Json, Text
from ._status import say, tell
from .compare import Across, FailOnOption, MetricName, Outs, Threshold, report_comparison

_FILE = Path("dnnsuite-baseline.csv")
_File = Annotated[Path, typer.Option("--baseline", "-b", help="File of the baseline.")]
_Directories = Annotated[list[Path], typer.Argument(help="Outputs of runs of any kind.", show_default=False)]


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
    from .. import results

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
    from .. import results

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
