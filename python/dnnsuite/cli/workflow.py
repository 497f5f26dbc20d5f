# SPDX-License-Identifier: MIT
"""`dnnsuite workflow`: training throughput by mode and number of models."""

from __future__ import annotations

import functools
import inspect
import json
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from .._runs.folder import WORKFLOW_FILE, default_out
from .._shown import settings_lines
from ..errors import InvalidArgument
from ..workflow.common_settings import flag
from ..workflow.modes import options_of
from ..workflow.settings import FLAGS, SEARCHED, as_flag, resolve
from ._late import convergence, outputs, results, workflows
from ._options import PRESETS, Json, Number, Real, Text, Texts, parameter, with_parameters
from ._status import FAILED, keeping, say, tell

_CONVERGENCE = "convergence"  # the name of the workflow that compares how an array trains with its models alone


def _search_flag(mode: str, name: str) -> inspect.Parameter:
    """Make HFTA's flag of the search for the largest B in a mode."""
    kind, meaning = FLAGS[name]
    panel = f"How many models fit: {mode}"
    own = typer.Option(as_flag(mode, name), help=f"{meaning}  [preset]", rich_help_panel=panel)
    return parameter(f"{mode}_{name}", Optional[kind], own)  # noqa: UP045


@functools.partial(with_parameters, more=[_search_flag(mode, name) for mode in SEARCHED for name in FLAGS])
def workflow(
    name: Annotated[str, "A job (`dnnsuite list` names them), convergence or resnet_partially_fused."],
    device: Text = None,
    devices: Annotated[
        Texts, "Devices to share the repeats: all (GPUs), cuda:0,cuda:1, or cpu,cpu (halves of the CPUs)."
    ] = None,
    device_model: Annotated[Text, "Name of the device in the files.  [the GPU's]"] = None,
    modes: Annotated[Texts, "Modes to measure, e.g. serial,hfta; mps and mig change the GPU.  [all others]"] = None,
    precisions: Annotated[Texts, "Precisions to measure, e.g. fp32,bf16.  [fp32, and amp on a GPU]"] = None,
    bf16: Annotated[bool, "Measure in bfloat16 too."] = False,
    repeats: Annotated[Number, "Runs of each point.  [preset]"] = None,
    epochs: Annotated[Number, "Epochs of a run; the first is warm-up.  [until --goal]"] = None,
    iters_per_epoch: Annotated[Number, "Iterations of an epoch.  [preset]"] = None,
    batch_size: Annotated[Number, "Items per model and iteration.  [preset]"] = None,
    seed: Annotated[Number, "Seed of models, data, plan and order.  [1]"] = None,
    preset: Annotated[Text, f"{PRESETS}  [default]"] = None,
    option: Texts = None,
    plan: Annotated[Texts, "Numbers of models to measure, e.g. 1,2,4,8.  [searched]"] = None,
    unfused: Annotated[
        Texts, "For NAME_partially_fused: modules to leave unfused one after the other, e.g. bn1,relu."
    ] = None,
    max_B: Annotated[Number, "Largest B, instead of searching for it."] = None,
    max_num_Bs: Annotated[Number, "Number of Bs to measure.  [preset]"] = None,
    lambd: Annotated[Real, "Density of the Bs near 1.  [4]"] = None,
    data: Text = None,
    dataroot: Annotated[Text, "Folder with the data set's files."] = None,
    threads: Annotated[Number, "CPU threads of a run's processes.  [$OMP_NUM_THREADS, or all]"] = None,
    goal: Annotated[
        Real, "Stop when the relative half width of each speedup's 95 % interval is below this.  [0.05]"
    ] = None,
    budget: Annotated[Real, "Seconds to reach --goal, start-up included.  [preset; --epochs: none]"] = None,
    timeout: Annotated[Real, "Seconds a turn may take.  [3600]"] = None,
    job: Annotated[Text, "For convergence: the job to train.  [resnet]"] = None,
    lrs: Annotated[Texts, "For convergence: learning rates, one per model, e.g. .002,.001.  [the job's]"] = None,
    models: Annotated[Number, "For convergence: number of models.  [3]"] = None,
    plugin: Texts = None,
    monitor: Text = None,
    out: Annotated[Text, "Output directory.  [dnnsuite-runs/NAME-TIME]"] = None,
    hfta_tree: Annotated[Text, "Also write the finished runs to this folder, in HFTA's layout."] = None,
    resume: bool = False,
    allow_changed: Texts = None,
    dry_run: Annotated[bool, "Print the runs in their order; run nothing."] = False,
    quiet: bool = False,
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
    if name == _CONVERGENCE:
        if devices:
            raise InvalidArgument(f"--devices distributes repeats; {_CONVERGENCE} has none")
        own = {"job": job, "lrs": lrs, "models": models, "hfta_tree": hfta_tree}
        return _compare({**asked, **own}, out, resume, dry_run, as_json, quiet)
    if given := [flag for flag, value in (("--job", job), ("--lrs", lrs), ("--models", models)) if value is not None]:
        raise InvalidArgument(f"{given[0]} is an option of `dnnsuite workflow {_CONVERGENCE}`")
    if dry_run:
        return _describe_plan(name, asked, as_json)

    where = Path(out) if out else default_out(name, WORKFLOW_FILE, resume)
    return _run_workflow(name, asked, where, resume, as_json, hfta_tree, quiet)


def _run_workflow(
    name: str, asked: dict[str, Any], out: Path, resume: bool, as_json: bool, hfta_tree: str | None, quiet: bool
) -> int:
    if not resume:
        _refuse_early(name, asked, hfta_tree)
    from ..workflow.sweep import sweep

    with keeping(out, WORKFLOW_FILE, f"dnnsuite workflow {name}"):
        report = sweep(name, asked, out, resume, quiet=quiet)
    if hfta_tree and report.table is not None:
        report.files += results.save_hfta_tree(out, to=hfta_tree)
    if as_json:
        print(json.dumps(_as_dict(report)))
    else:
        _print_report(report)
    for problem in report.problems:
        say(problem)
    return 0 if report.ok else FAILED


def _refuse_early(name: str, asked: dict[str, Any], hfta_tree: str | None) -> None:
    """Refuse names, values and a folder that HFTA's tree could not be written to, before anything slow is imported."""
    settings = resolve(*options_of(name, asked))
    if hfta_tree is not None:
        from ..results.hfta_tables import refuse_other_tree

        refuse_other_tree(Path(hfta_tree) / settings.job)


def _print_report(report: workflows.WorkflowReport) -> None:
    from rich.console import Console

    outputs.print_table(Console(), outputs.rows(report.summary, report.state))
    for remark in outputs.remarks(report.table, report.summary):
        print(f"note: {remark}")
    for path in report.files:
        print(path)


def _as_dict(report: workflows.WorkflowReport) -> dict[str, Any]:
    state = report.state
    return {
        "job": report.settings.job,
        "out": str(report.root),
        "ok": report.ok,
        "problems": report.problems,
        "rows": outputs.rows(report.summary, state),
        "remarks": outputs.remarks(report.table, report.summary),
        "files": [str(path) for path in report.files],
        "settings": state["settings"],
        "environment": state["environment"],
        **{key: state[key] for key in ("unavailable", "search", "Bs", "equality")},
    }


def _describe_plan(name: str, asked: dict[str, Any], as_json: bool) -> int:
    from ..workflow.plan import check, planned_points

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


def _compare(asked: dict[str, Any], out: str | None, resume: bool, dry_run: bool, as_json: bool, quiet: bool) -> int:
    """Compare how an array trains with its models alone, or print the plan of it."""
    from ..workflow.convergence.plan import OPTIONS

    options = {name: value for name, value in asked.items() if value is not None}
    if odd := next((name for name in options if name not in OPTIONS and name != "precisions"), None):
        raise InvalidArgument(f"{flag(odd)} has no meaning for convergence; it has --job, --lrs, --models, --epochs")
    precisions = [each for value in options.pop("precisions", []) for each in value.split(",")]
    if len(precisions) > 1:
        raise InvalidArgument(f"--precisions {','.join(precisions)}: convergence is compared in one precision")
    if precisions:
        options["precision"] = precisions[0]
    if dry_run:
        return _describe_trainings(options, as_json)
    where = Path(out) if out else default_out(_CONVERGENCE, WORKFLOW_FILE, resume)
    with keeping(where, WORKFLOW_FILE, f"dnnsuite workflow {_CONVERGENCE}", "finished trainings"):
        report = convergence.run(where, resume, quiet=quiet, **options)
    files = [str(path) for path in report.files]
    if as_json:
        verdict = None if report.verdict is None else report.verdict.to_dict()
        found = {"out": str(report.root), "ok": report.ok, "problems": report.problems, "verdict": verdict}
        print(json.dumps({**found, "files": files, "settings": report.settings.to_dict()}))
    else:
        if report.verdict is not None:
            print(report.verdict)
        for path in files:
            tell(path)
    for problem in report.problems:
        say(problem)
    return 0 if report.ok else FAILED


def _describe_trainings(options: dict[str, Any], as_json: bool) -> int:
    from ..workflow.convergence.plan import WAYS, resolve
    from ..workflow.plan import weigh

    settings = resolve(options)
    weigh(settings)
    if as_json:
        print(json.dumps({"settings": settings.to_dict(), "trainings": list(WAYS)}))
        return 0
    print("\n".join(settings_lines(settings.to_dict())))
    print(f"\n{len(WAYS)} trainings of {settings.iterations} iterations of {len(settings.lrs)} models:")
    for way, what in WAYS.items():
        print(f"  {way:<8} {what}")
    return 0
