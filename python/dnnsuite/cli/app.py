# SPDX-License-Identifier: MIT
"""The command `dnnsuite`. Exit status: 0 ok, 1 the thing measured failed, 2 usage or environment."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ..errors import Error, InvalidArgument
from . import (
    import_ as _import_command,
)
from . import (
    metrics as _metrics_command,
)
from . import (
    pin as _pin_command,
)
from . import (
    profile as _profile_command,
)
from . import (
    report as _report_command,
)
from . import (
    roofline as _roofline_command,
)
from . import (
    run as _run_command,
)

if TYPE_CHECKING:
    from ..workflow.phases import Report

__all__ = ["main"]

FAILED, USAGE = 1, 2

app = typer.Typer(
    name="dnnsuite", help="Measure, see and multiply the training of deep neural networks.",
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
# Typer reads annotations when it runs, on Python 3.10 too, where it wants Optional spelled out.
Number = Optional[int]  # noqa: UP045
Text = Optional[str]  # noqa: UP045
Texts = Optional[list[str]]  # noqa: UP045


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line (`sys.argv` by default) and exit with its status."""
    app(list(arguments) if arguments is not None else sys.argv[1:], prog_name="dnnsuite")


def _reporting(command: Callable[..., int]) -> Callable[..., None]:
    """A command that returns its exit status; the package's errors become one line on stderr and status 2."""

    @functools.wraps(command)
    def reporting(*args: Any, **kwargs: Any) -> None:
        from .._runs.interrupts import Interrupted, interruptible

        try:
            with interruptible():
                status = command(*args, **kwargs)
                sys.stdout.flush()
        except Interrupted as interrupted:
            _say(f"interrupted by {interrupted}")
            status = interrupted.exit_code
        except BrokenPipeError:  # the reader of a pipe, `head` say, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            status = 0
        except (Error, OSError) as error:
            _say(f"error: {error}")
            status = USAGE
        if status:
            raise typer.Exit(status)

    return reporting


def _say(text: str) -> None:
    print(f"dnnsuite: {text}", file=sys.stderr)


app.add_typer(_metrics_command.commands(_reporting), name="metrics")
app.add_typer(_pin_command.commands(_reporting), name="pin")
app.command()(_reporting(_profile_command.profile))
app.command("import")(_reporting(_import_command.import_file))
app.command()(_reporting(_report_command.report))
app.command()(_reporting(_roofline_command.roofline))
app.command("run")(_reporting(_run_command.run))


@app.command("list")
@_reporting
def list_jobs(
    plugin: Annotated[Texts, typer.Option(help="Module that registers more jobs; repeatable.")] = None,
    as_json: Json = False,
) -> int:
    """List the jobs, the suites of them, and the modes in which a workflow runs those that have a fused form."""
    from .. import jobs
    from .._runs.plugins import import_plugins
    from ..suites import SUITES
    from ..workflow import MODES

    import_plugins(plugin or [], [os.getcwd()])
    known = {name: jobs.get(name).description for name in jobs.names()}
    ways = {mode.name: mode.description for mode in MODES.values()}
    if as_json:
        print(
            json.dumps(
                {"jobs": known, "suites": {name: list(jobs) for name, jobs in SUITES.items()}, "modes": ways}
            )
        )
        return 0
    for title, entries in (("jobs", known), ("modes", ways)):
        print(f"{title}:")
        for name, description in entries.items():
            print(f"  {name:<12} {description}")
    print("suites:")
    for name, members in SUITES.items():
        print(f"  {name:<12} {' '.join(members)}")
    return 0


@app.command()
@_reporting
def doctor(as_json: Json = False) -> int:
    """Say what works on this machine, and what each missing thing needs."""
    from .. import doctor as checks

    report = checks.report()
    print(json.dumps(checks.to_dict(report)) if as_json else checks.render(report))
    return checks.exit_code(report)


@app.command()
@_reporting
def workflow(
    name: Annotated[str, typer.Argument(help="A job; `dnnsuite list` names them.", show_default=False)],
    device: Annotated[Text, typer.Option(help="auto, cpu or cuda.  [auto]")] = None,
    device_model: Annotated[Text, typer.Option(help="Name for the files.  [the GPU's]")] = None,
    modes: Annotated[Texts, typer.Option(help="serial,concurrent,mps,mig,hfta.  [all there are]")] = None,
    precisions: Annotated[Texts, typer.Option(help="fp32,amp.  [all the job has on the device]")] = None,
    repeats: Annotated[Number, typer.Option(help="Runs of each point.  [preset]")] = None,
    epochs: Annotated[Number, typer.Option(help="Epochs of a run; the first is warm-up.  [preset]")] = None,
    iters_per_epoch: Annotated[Number, typer.Option(help="Iterations of an epoch.  [preset]")] = None,
    batch_size: Annotated[Number, typer.Option(help="Items per model and iteration.  [preset]")] = None,
    seed: Annotated[Number, typer.Option(help="Of models, data, plan and order.  [1]")] = None,
    preset: Annotated[Text, typer.Option(help="quick or paper.  [quick]")] = None,
    plan: Annotated[
        Texts, typer.Option(help="The numbers of models to measure, as 1,2,4,8.  [searched]")
    ] = None,
    max_B: Annotated[Number, typer.Option("--max-B", help="Largest B, instead of searching for it.")] = None,
    max_num_Bs: Annotated[
        Number, typer.Option("--max-num-Bs", help="How many Bs to measure.  [preset]")
    ] = None,
    lambd: Annotated[Optional[float], typer.Option(help="How dense the Bs are near 1.  [4]")] = None,  # noqa: UP045
    data: Annotated[Text, typer.Option(help="Source of the data, as auto or synthetic.  [auto]")] = None,
    dataroot: Annotated[Text, typer.Option(help="Folder with the data set's files.")] = None,
    threads: Annotated[Number, typer.Option(help="CPU threads, shared by a run's processes.  [all]")] = None,
    timeout: Annotated[Optional[float], typer.Option(help="Seconds a run may take.  [3600]")] = None,  # noqa: UP045
    plugin: Annotated[Texts, typer.Option(help="Module that registers a job of yours; repeatable.")] = None,
    out: Annotated[Text, typer.Option(help="Output directory.  [dnnsuite-runs/NAME-TIME]")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Do what is missing in --out (or the last one).")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would run, in which order; run nothing.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Measure a job's training throughput by mode and number of models, and draw the speedup curve."""
    asked = {
        "device": device, "device_model": device_model, "modes": modes, "precisions": precisions,
        "repeats": repeats, "epochs": epochs, "iters_per_epoch": iters_per_epoch, "batch_size": batch_size,
        "seed": seed, "preset": preset, "plan": plan, "max_B": max_B, "max_num_Bs": max_num_Bs,
        "lambd": lambd, "data": data, "dataroot": dataroot, "threads": threads, "timeout_s": timeout,
        "plugins": plugin,
    }  # fmt: skip
    if dry_run:
        return _describe_plan(name, asked, as_json)
    return _run_workflow(name, asked, Path(out) if out else _default_out(name, resume), resume, as_json)


def _default_out(name: str, resume: bool) -> Path:
    from .._runs.folder import stamp
    from ..workflow.protocol import WORKFLOW_FILE

    parent = Path("dnnsuite-runs")
    if not resume:
        return parent / f"{name}-{stamp()}"
    last = sorted(parent.glob(f"{name}-*/{WORKFLOW_FILE}"))
    if not last:
        raise InvalidArgument(
            f"--resume: nothing to continue, there is no {parent}/{name}-*; name it with --out"
        )
    return last[-1].parent


def _run_workflow(name: str, asked: dict[str, Any], out: Path, resume: bool, as_json: bool) -> int:
    from .._runs.interrupts import Interrupted
    from ..workflow.sweep import sweep

    try:
        report = sweep(name, asked, out, resume)
    except (Interrupted, Error, OSError) as error:
        kept = len(list((out / "runs").glob("[!.]*/run.json")))
        if not isinstance(error, InvalidArgument) and (out / "workflow.json").is_file():
            again = f"dnnsuite workflow {name} --resume --out {out}"
            _say(f"{kept} finished runs are kept in {out}; continue: {again}")
        raise
    if as_json:
        print(json.dumps(_as_dict(report)))
    else:
        _print_report(report)
    for problem in report.problems:
        _say(problem)
    return 0 if report.ok else FAILED


def _print_report(report: Report) -> None:
    from rich.console import Console

    from ..workflow.outputs import print_table, remarks, rows

    print_table(Console(), rows(report.summary, report.state))
    for remark in remarks(report.table):
        print(f"note: {remark}")
    for path in report.files:
        print(path)


def _as_dict(report: Report) -> dict[str, Any]:
    from ..workflow.outputs import remarks, rows

    state = report.state
    return {
        "job": report.settings.job, "out": str(report.root), "ok": report.ok, "problems": report.problems,
        "rows": rows(report.summary, state), "remarks": remarks(report.table),
        "files": [str(path) for path in report.files],
        "settings": state["settings"], "environment": state["environment"],
        **{key: state[key] for key in ("unavailable", "search", "Bs", "equality")},
    }  # fmt: skip


def _describe_plan(name: str, asked: dict[str, Any], as_json: bool) -> int:
    from ..workflow.points import planned_points
    from ..workflow.settings import resolve

    settings = resolve(name, asked)
    order, remarks = planned_points(settings)
    steps = sum(settings.epochs * settings.iters_per_epoch * point.B for _, point in order)
    if as_json:
        runs = [{"repeat": repeat, "mode": p.mode, "precision": p.precision, "B": p.B} for repeat, p in order]
        print(
            json.dumps(
                {"settings": settings.to_dict(), "runs": runs, "remarks": remarks, "model_steps": steps}
            )
        )
        return 0
    for key, value in settings.to_dict().items():
        print(f"{key:<16} {value}")
    print(f"\n{len(order)} runs, {steps} training steps counted over all models; in this order:")
    for repeat, point in order:
        print(f"  repeat {repeat + 1}  {point}")
    for remark in remarks:
        print(f"note: {remark}")
    return 0


@app.command()
@_reporting
def plot(
    directory: Annotated[
        Path, typer.Argument(help="A workflow's output, or a tree of HFTA's timing.csv files.")
    ],
    save: Annotated[Optional[Path], typer.Option(help="PREFIX of the .csv and .png to write.")] = None,  # noqa: UP045
    as_json: Json = False,
) -> int:
    """Draw normalised throughput over B from finished runs, and write it as CSV."""
    from matplotlib.figure import Figure

    from .. import plots, results

    table = results.load(directory)
    first = table.iloc[0]
    prefix = save or directory / f"{first['device']}-{first['job']}"
    axes = plots.throughput(results.summarize(table), Figure(figsize=(6.4, 4.0)).subplots())
    files = [prefix.with_name(prefix.name + suffix) for suffix in (".csv", ".png")]
    results.save_csv(results.wide(table), files[0], index=True)
    plots.save(axes, files[1])
    print(json.dumps({"files": [str(path) for path in files]}) if as_json else "\n".join(map(str, files)))
    return 0
