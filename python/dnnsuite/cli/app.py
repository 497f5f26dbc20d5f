# SPDX-License-Identifier: MIT
"""The command `dnnsuite`. Exit status: 0 ok, 1 the thing measured failed, 2 usage or environment."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from . import (
    advise,
    baseline,
    compare,
    data,
    doctor,
    import_,
    ladder,
    list_,
    metrics,
    pin,
    plot,
    profile,
    report,
    roofline,
    run,
    show,
    throughput,
    train,
    tune,
    workflow,
)
from ._status import reporting
from .tune_on_cluster import run_part

__all__ = ["main", "tune_as_part"]

app = typer.Typer(
    name="dnnsuite",
    help="Measure, see and multiply the training of deep neural networks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(data.commands(reporting), name="data")
app.add_typer(baseline.commands(reporting), name="baseline")
app.add_typer(metrics.commands(reporting), name="metrics")
app.add_typer(pin.commands(reporting), name="pin")
app.command()(reporting(profile.profile))
app.command("import")(reporting(import_.import_file))
app.command()(reporting(report.report))
app.command()(reporting(compare.compare))
app.command()(reporting(roofline.roofline))
app.command("run")(reporting(run.run))
app.command("list")(reporting(list_.list_jobs))
app.command()(reporting(show.show))
app.command()(reporting(doctor.doctor))
app.command()(reporting(workflow.workflow))
app.command()(reporting(train.train))
app.command()(reporting(tune.tune))
app.command()(reporting(ladder.ladder))
app.command()(reporting(throughput.throughput))
app.command()(reporting(plot.plot))
app.command()(reporting(advise.advise))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line (`sys.argv` by default) and exit with its status."""
    app(list(arguments) if arguments is not None else sys.argv[1:], prog_name="dnnsuite")


def tune_as_part(order: Mapping[str, Any], directory: Path, resume: bool) -> None:
    """Take part in a search as a task of a cluster."""
    run_part(main, order, directory)
