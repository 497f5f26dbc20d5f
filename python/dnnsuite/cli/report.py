# SPDX-License-Identifier: MIT
"""`dnnsuite report`, and `mlbench-report` with the flags of the tool that it replaces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from .._files import write_json, write_text
from ..errors import InvalidArgument
from ._late import reports, targets
from ._options import File, Files, Json, Number, Real, Text
from ._status import say, script

_KINDS = {".pdf": "pdf", ".txt": "text", ".md": "markdown", ".csv": "csv", ".json": "json", ".html": "html"}


def report(
    directories: Annotated[list[Path], "Outputs of `dnnsuite run`, or of other runs."],
    name: Annotated[Text, "Name of the suite, e.g. baselines.  [all]"] = None,
    gpu_model: Annotated[Text, "Target machine, or a CSV file of targets."] = None,
    style: Annotated[str, "Parts to print; seed is the original suite's table with its statistics."] = "full",
    out: Annotated[Files, "Also write a .txt, .md, .csv, .json, .html or .pdf file; repeatable."] = None,
    exclude: Annotated[Text, "Jobs to leave out, e.g. a,b."] = None,
    alone: Annotated[Files, "Output of `dnnsuite run --alone`: adds what sharing costs; repeatable."] = None,
    save_target: Annotated[File, "Make this machine the target: write a CSV file of targets."] = None,
    pdf: Annotated[File, "Also save the page as PDF, using an installed browser."] = None,
    price: Annotated[Real, "Price of the machine; adds the cost per score point."] = None,
    cost_per_hour: Annotated[Real, "Price per hour of the machine."] = None,
    currency: Annotated[str, "Currency of the prices, e.g. EUR."] = "",
    watts: Annotated[Real, "Power of the machine, for the energy of an item."] = None,
    jobs: Annotated[Number, "Number of jobs that must have been measured.  [the suite's]"] = None,
    title: Annotated[str, "Title of the report."] = "",
    allow_unlike: Annotated[bool, "Pool runs of different machines or jobs, with a note."] = False,
    as_json: Json = False,
) -> int:
    """Report on suite runs: rates, passes, failures, isolation."""
    files = [*(out or ()), *([pdf] if pdf else ())]
    for path in files:
        _kind(path)
    made = reports.make(
        directories,
        name,
        gpu_model,
        title=title,
        exclude=[job for job in (exclude or "").split(",") if job],
        price=price,
        cost_per_hour=cost_per_hour,
        watts=watts,
        currency=currency,
        jobs=jobs,
        alone=alone or (),
        allow_unlike=allow_unlike,
    )
    for problem in made.problems:  # on standard error: what is on standard output may be read by a program
        say(problem)
    for path in files:
        _write(path, made)
    if save_target is not None:
        targets.save(save_target, made.entries)
        say(f"target written; use it with --gpu-model {save_target}")
    if as_json:
        print(json.dumps(made.to_dict()))
    else:
        styles = {"full": reports.text, "seed": reports.style_seed, "score": reports.style_score}
        print(styles[style](made).rstrip("\n"))
    return 0 if made.passed else 1


def _kind(path: Path) -> str:
    try:
        return _KINDS[path.suffix]
    except KeyError:
        raise InvalidArgument(f"--out {path}: the name must end in one of {', '.join(_KINDS)}") from None


def _write(path: Path, made: reports.SuiteReport) -> None:
    kind = _kind(path)
    if kind == "pdf":
        reports.print_pdf(reports.html(made), path)
    elif kind == "json":
        write_json(path, made.to_dict())
    elif kind == "csv":
        write_text(path, made.summary.join(made.seed.add_prefix("seed_")).to_csv())
    else:
        render: Any = {"text": reports.text, "markdown": reports.markdown, "html": reports.html}[kind]
        write_text(path, render(made))


def mlbench_report() -> None:
    """`mlbench-report --reports DIR --name NAME --gpu-model MODEL`: the table and statistics of the original."""
    _mlbench_report.__doc__ = mlbench_report.__doc__
    script("mlbench-report", _mlbench_report)


def _mlbench_report(
    reports: Annotated[Path, typer.Option(help="Folder with one folder per run.")],
    name: Annotated[str, typer.Option("--name", "--jobs", help="Name of the suite.")] = "fast",
    gpu_model: Annotated[Text, "V100, MI50 or RTX."] = None,
    show_comparison: Annotated[bool, "Print the targets too."] = False,
    csv: Annotated[File, "Also write the table to this file."] = None,
    html: Annotated[File, "Also write a page; prints the score instead of the statistics."] = None,
    title: Annotated[str, "Title of the page."] = "",
    price: Annotated[Real, "Total price."] = None,
    gputotal: Annotated[Number, typer.Option(hidden=True)] = None,  # the original took it and did nothing with it
) -> None:
    from .. import report as made_by

    made = made_by.make([reports], name, gpu_model, title=title, price=price)
    for problem in made.problems:
        say(problem)
    if show_comparison and gpu_model:
        for job, target in targets.load(gpu_model).items():
            print(f"{job:<26} {target.rate:>12.2f}")
    if csv is not None:
        write_text(csv, made.seed.to_csv())
    if html is not None:
        write_text(html, made_by.html(made))
    print(made_by.style_score(made) if html else made_by.style_seed(made))
