# SPDX-License-Identifier: MIT
"""`dnnsuite workflow`: training throughput by mode and number of models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from .._shown import settings_lines
from ..errors import InvalidArgument
from . import convergence
from ._options import PRESETS, AllowChanged, Json, Number, Quiet, Text, Texts
from ._parameters import with_search_flags
from ._status import FAILED, keeping, say

if TYPE_CHECKING:
    from ..workflow import WorkflowReport


@with_search_flags
def workflow(
    name: Annotated[
        str,
        typer.Argument(
            help="A job (`dnnsuite list` names them), convergence or resnet_partially_fused.", show_default=False
        ),
    ],
    device: Annotated[Text, typer.Option()] = None,
    devices: Annotated[
        Texts,
        typer.Option(help="Devices to share the repeats: all (GPUs), cuda:0,cuda:1, or cpu,cpu (halves of the CPUs)."),
    ] = None,
    device_model: Annotated[Text, typer.Option(help="Name of the device in the files.  [the GPU's]")] = None,
    modes: Annotated[
        Texts, typer.Option(help="Modes to measure, e.g. serial,hfta; mps and mig change the GPU.  [all others]")
    ] = None,
    precisions: Annotated[
        Texts, typer.Option(help="Precisions to measure, e.g. fp32,bf16.  [fp32, and amp on a GPU]")
    ] = None,
    bf16: Annotated[bool, typer.Option("--bf16", help="Measure in bfloat16 too.")] = False,
    repeats: Annotated[Number, typer.Option(help="Runs of each point.  [preset]")] = None,
    epochs: Annotated[Number, typer.Option(help="Epochs of a run; the first is warm-up.  [until --goal]")] = None,
    iters_per_epoch: Annotated[Number, typer.Option(help="Iterations of an epoch.  [preset]")] = None,
    batch_size: Annotated[Number, typer.Option(help="Items per model and iteration.  [preset]")] = None,
    seed: Annotated[Number, typer.Option(help="Seed of models, data, plan and order.  [1]")] = None,
    preset: Annotated[Text, typer.Option(help=f"{PRESETS}  [default]")] = None,
    option: Annotated[Texts, typer.Option()] = None,
    plan: Annotated[Texts, typer.Option(help="Numbers of models to measure, e.g. 1,2,4,8.  [searched]")] = None,
    unfused: Annotated[
        Texts,
        typer.Option(help="For NAME_partially_fused: modules to leave unfused one after the other, e.g. bn1,relu."),
    ] = None,
    max_B: Annotated[Number, typer.Option("--max-B", help="Largest B, instead of searching for it.")] = None,
    max_num_Bs: Annotated[Number, typer.Option("--max-num-Bs", help="Number of Bs to measure.  [preset]")] = None,
    lambd: Annotated[Optional[float], typer.Option(help="Density of the Bs near 1.  [4]")] = None,  # noqa: UP045
    data: Annotated[Text, typer.Option()] = None,
    dataroot: Annotated[Text, typer.Option(help="Folder with the data set's files.")] = None,
    threads: Annotated[
        Number, typer.Option(help="CPU threads of a run's processes.  [$OMP_NUM_THREADS, or all]")
    ] = None,
    goal: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="Stop when the relative half width of each speedup's 95 % interval is below this.  [0.05]"),
    ] = None,
    budget: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="Seconds to reach --goal, start-up included.  [preset; --epochs: none]"),
    ] = None,
    timeout: Annotated[Optional[float], typer.Option(help="Seconds a turn may take.  [3600]")] = None,  # noqa: UP045
    job: Annotated[Text, typer.Option(help="For convergence: the job to train.  [resnet]")] = None,
    lrs: Annotated[
        Texts, typer.Option(help="For convergence: learning rates, one per model, e.g. .002,.001.  [the job's]")
    ] = None,
    models: Annotated[Number, typer.Option(help="For convergence: number of models.  [3]")] = None,
    plugin: Annotated[Texts, typer.Option()] = None,
    monitor: Annotated[Text, typer.Option()] = None,
    out: Annotated[Text, typer.Option(help="Output directory.  [dnnsuite-runs/NAME-TIME]")] = None,
    hfta_tree: Annotated[
        Text, typer.Option(help="Also write the finished runs to this folder, in HFTA's layout.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume")] = False,
    allow_changed: AllowChanged = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the runs in their order; run nothing.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
    **search: Any,
) -> int:
    """Measure a job's training speed by mode and number of models.

    Writes a table of rates with intervals and the speedup curve over the number of models.
    """
    asked = {
        "device": device, "devices": devices, "device_model": device_model, "modes": modes, "precisions": precisions,
        "repeats": repeats, "epochs": epochs, "iters_per_epoch": iters_per_epoch, "batch_size": batch_size,
        "seed": seed, "preset": preset, "plan": plan, "max_B": max_B, "max_num_Bs": max_num_Bs,
        "lambd": lambd, "data": data, "dataroot": dataroot, "threads": threads, "timeout_s": timeout,
        "goal": goal, "budget_s": budget,
        "plugins": plugin, "options": option, "bf16": bf16 or None, "monitor": monitor, "units": unfused,
        "allow_changed": allow_changed,
        **search,
    }  # fmt: skip
    if name == convergence.NAME:
        if devices:
            raise InvalidArgument(f"--devices distributes repeats; {convergence.NAME} has none")
        own = {"job": job, "lrs": lrs, "models": models, "hfta_tree": hfta_tree}
        return convergence.compare({**asked, **own}, out, resume, dry_run, as_json, quiet)
    if given := [flag for flag, value in (("--job", job), ("--lrs", lrs), ("--models", models)) if value is not None]:
        raise InvalidArgument(f"{given[0]} is an option of `dnnsuite workflow {convergence.NAME}`")
    if dry_run:
        return _describe_plan(name, asked, as_json)
    from .._runs.folder import WORKFLOW_FILE, default_out

    where = Path(out) if out else default_out(name, WORKFLOW_FILE, resume)
    return _run_workflow(name, asked, where, resume, as_json, hfta_tree, quiet)


def _run_workflow(
    name: str, asked: dict[str, Any], out: Path, resume: bool, as_json: bool, hfta_tree: str | None, quiet: bool
) -> int:
    from .._runs.folder import WORKFLOW_FILE

    if not resume:
        _refuse_early(name, asked, hfta_tree)
    from ..workflow.sweep import sweep

    with keeping(out, WORKFLOW_FILE, f"dnnsuite workflow {name}"):
        report = sweep(name, asked, out, resume, quiet=quiet)
    if hfta_tree and report.table is not None:
        from ..results import save_hfta_tree

        report.files += save_hfta_tree(out, to=hfta_tree)
    if as_json:
        print(json.dumps(_as_dict(report)))
    else:
        _print_report(report)
    for problem in report.problems:
        say(problem)
    return 0 if report.ok else FAILED


def _refuse_early(name: str, asked: dict[str, Any], hfta_tree: str | None) -> None:
    """Refuse names, values and a folder that HFTA's tree could not be written to, before anything slow is imported."""
    from ..workflow.modes import options_of
    from ..workflow.settings import resolve

    settings = resolve(*options_of(name, asked))
    if hfta_tree is not None:
        from ..results.hfta_tree import refuse_other_tree

        refuse_other_tree(Path(hfta_tree) / settings.job)


def _print_report(report: WorkflowReport) -> None:
    from rich.console import Console

    from ..workflow.outputs import print_table, remarks, rows

    print_table(Console(), rows(report.summary, report.state))
    for remark in remarks(report.table, report.summary):
        print(f"note: {remark}")
    for path in report.files:
        print(path)


def _as_dict(report: WorkflowReport) -> dict[str, Any]:
    from ..workflow.outputs import remarks, rows

    state = report.state
    return {
        "job": report.settings.job,
        "out": str(report.root),
        "ok": report.ok,
        "problems": report.problems,
        "rows": rows(report.summary, state),
        "remarks": remarks(report.table, report.summary),
        "files": [str(path) for path in report.files],
        "settings": state["settings"],
        "environment": state["environment"],
        **{key: state[key] for key in ("unavailable", "search", "Bs", "equality")},
    }


def _describe_plan(name: str, asked: dict[str, Any], as_json: bool) -> int:
    from ..workflow.modes import options_of
    from ..workflow.plan import check, planned_points
    from ..workflow.settings import resolve

    job, options = options_of(name, asked)
    settings = resolve(job, options)
    check(settings, options)
    order, remarks = planned_points(settings)
    if as_json:
        runs = [{"repeat": repeat, "mode": p.mode, "precision": p.precision, "B": p.B} for repeat, p in order]
        print(json.dumps({"settings": settings.to_dict(), "runs": runs, "remarks": remarks}))
        return 0
    print("\n".join(settings_lines(settings.to_dict())))
    print(f"\n{len(order)} runs; those that fit the memory together take turns:")
    for repeat, point in order:
        print(f"  repeat {repeat + 1}  {point}")
    for remark in remarks:
        print(f"note: {remark}")
    return 0 if order else 1
