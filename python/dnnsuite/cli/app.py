# SPDX-License-Identifier: MIT
"""The command `dnnsuite`. Exit status: 0 ok, 1 the thing measured failed, 2 usage or environment."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from . import (
    advise,
    compare,
    data,
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
    throughput,
    train,
    tune,
    workflow,
)
from ._command import Commands, add_commands
from ._status import USAGE, reporting
from .on_cluster import tune_as_part as _tune_as_part

app = typer.Typer(
    name="dnnsuite",
    cls=Commands,
    help="Measure, see and multiply the training of deep neural networks.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_START = """\
dnnsuite {version}: measure, see and multiply the training of deep neural networks.

Begin with
  dnnsuite doctor                             what works on this machine and what is missing
  dnnsuite list                               the jobs that can be measured

Multiply: train B models as one array
  dnnsuite workflow bert --preset quick       compare models alone, side by side and as one array
  dnnsuite tune resnet --preset quick         search hyper-parameters, many trials at once

Measure
  dnnsuite run toy_reg --preset quick         a benchmark, in isolated shares of the machine
  dnnsuite throughput toy_reg --preset quick  items per second at each batch size

See
  dnnsuite profile toy_reg                    where the time of a training step goes
  dnnsuite profile -- python train.py         the same for your own script, unmodified

`dnnsuite --help` lists all commands, and `dnnsuite COMMAND --help` the options of one."""


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"dnnsuite {_version()}")
        raise typer.Exit


def _version() -> str:
    from importlib.metadata import version

    return version("dnnsuite")


@app.callback()
def start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Measure, see and multiply the training of deep neural networks."""
    if context.invoked_subcommand is None:
        print(_START.format(version=_version()))
        raise typer.Exit(USAGE)


# In the order of the help: what most users need first.
_COMMANDS: dict[str, Callable[..., int]] = {
    "doctor": list_.doctor, "list": list_.list_jobs, "show": list_.show, "workflow": workflow.workflow,
    "tune": tune.tune, "advise": advise.advise, "run": run.run, "train": train.train,
    "throughput": throughput.throughput, "ladder": ladder.ladder, "profile": profile.profile,
    "import": import_.import_file, "roofline": roofline.roofline, "report": report.report,
    "compare": compare.compare, "plot": plot.plot,
}  # fmt: skip
add_commands(app, {name: reporting(command) for name, command in _COMMANDS.items()})
_GROUPS: dict[str, tuple[str, dict[str, Callable[..., int]]]] = {
    "baseline": (
        "Keep results in one file; check later runs against it.",
        {"save": compare.save, "check": compare.check},
    ),
    "data": (
        "List, find and prepare data sets.",
        {"list": data.list_sets, "where": data.where, "prepare": data.prepare_set, "valprep": data.valprep,
         "tfrecord": data.tfrecord},
    ),
    "metrics": (
        "GPU counters: names, passes, roles; no GPU is needed.",
        {"list": metrics.list_metrics, "plan": metrics.plan, "roles": metrics.roles, "support": metrics.support},
    ),
    "pin": (
        "Divide this machine into equal, isolated shares.",
        {"probe": pin.probe, "plan": pin.plan, "ls": pin.ls, "clean": pin.clean, "exec": pin.exec, "run": pin.run},
    ),
}  # fmt: skip
for _name, (_about, _members) in _GROUPS.items():
    _group = typer.Typer(help=_about, no_args_is_help=True)
    add_commands(_group, {name: reporting(command) for name, command in _members.items()}, _name)
    app.add_typer(_group, name=_name)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line (`sys.argv` by default) and exit with its status."""
    app(list(arguments) if arguments is not None else sys.argv[1:], prog_name="dnnsuite")


def tune_as_part(order: Mapping[str, Any], directory: Path, resume: bool) -> None:
    """Take part in a search, as a task of a cluster."""
    _tune_as_part(main, order, directory)
