# SPDX-License-Identifier: MIT
"""`dnnsuite tune`: a search for the hyper-parameters of a job, in several modes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import jobs
from .._runs.folder import SWEEP_FILE, default_out
from .._runs.spec import import_plugins
from .._runs.words import choose_device, parse_options
from .._shown import duration, metric, ratio
from ..errors import InvalidArgument
from ..workflow.common_settings import at_least
from ..workflow.modes import get
from ._options import PRESETS, Json, Number, Text, Texts
from ._status import FAILED
from .on_cluster import OF_SEARCH, TuningOnCluster, command_line, search_on_cluster
from .run import parameters

if TYPE_CHECKING:
    from ..tuning import Algorithm, Sweep
    from ..tuning.job import JobSweep, LoraSearch


def tune(
    context: typer.Context,
    job: Annotated[str, "A declared job, e.g. pointnet_cls; or lora, with --base and --data."],
    algorithm: Annotated[Text, "How configurations are chosen and stopped.  [hyperband; asha for lora]"] = None,
    max_iters: Annotated[Number, "Largest number of epochs of a trial (R).  [9 for quick, 3 for lora, else 81]"] = None,
    trials: Annotated[
        Number, "Number of configurations; hyperband sets its own.  [9 for quick, 16 for lora, else 81]"
    ] = None,
    eta: Annotated[int, "One in ETA trials continues to the next rung."] = 3,
    skip_last: Annotated[int, "Rungs of hyperband to leave out; HFTA leaves out 2."] = 0,
    modes: Annotated[Texts, "Ways to train the trials, e.g. hfta,serial.  [hfta,serial]"] = None,
    space: Annotated[Text, "YAML or JSON file of ranges by name.  [HFHT's of the job]"] = None,
    metric: Annotated[Text, "Metric of the held-out samples: acc or loss.  [acc]"] = None,
    goal: Annotated[Text, "Whether the metric is minimized or maximized.  [by the metric]"] = None,
    patience: Annotated[Number, "Epochs without an improvement that end a trial."] = None,
    preset: Annotated[str, PRESETS] = "default",
    repeats: Annotated[int, "Searches of each mode, each with another seed."] = 1,
    width: Annotated[Number, "Trials at once.  [measured]"] = None,
    threads: Annotated[Number, "CPU threads.  [all]"] = None,
    iters_per_epoch: Annotated[Number, "Batches of an epoch.  [preset]"] = None,
    batch_size: Annotated[Number, "Batch size, if the space has none.  [preset]"] = None,
    option: Texts = None,
    seed: Annotated[int, "Seed of draws, weights and the order of data."] = 1117,
    device: str = "auto",
    devices: Annotated[
        Texts, "Devices, with one process each: all (GPUs), cuda:0,cuda:1, or cpu,cpu (halves of the CPUs)."
    ] = None,
    data: Annotated[str, "Source of the samples; for lora a file of JSON lines."] = "auto",
    base: Annotated[Text, "lora: folder of a causal language model in transformers format."] = None,
    held_out: Annotated[Text, "lora: file to compare trials by.  [a tenth of --data]"] = None,
    tokenizer: Annotated[Text, "lora: folder of a tokenizer, or bytes.  [--base]"] = None,
    micro_batch: Annotated[Number, "lora: sequences per model at once; the gradients of a batch add up.  [all]"] = None,
    keep: Annotated[Number, "lora: number of the best adapters to save.  [3]"] = None,
    dataroot: Annotated[Text, "Folder with the data set's files."] = None,
    plugin: Texts = None,
    out: Annotated[Text, "Output directory.  [dnnsuite-runs/tune-JOB-TIME]"] = None,
    resume: bool = False,
    allow_changed: Texts = None,
    share: Annotated[bool, "Train some of the trials in --out, together with other processes of this command."] = False,
    cluster: Annotated[Text, "Distribute the trials over cluster tasks."] = None,
    workers: Annotated[Number, "Tasks of the cluster.  [4]"] = None,
    cluster_option: Texts = None,
    quiet: bool = False,
    as_json: Json = False,
) -> int:
    """Search a job's hyper-parameters, many trials at once.

    All modes do the same search and must find the same best configuration; their times are compared. Each writes
    history.csv and trajectory.csv in HFHT's format. Trials that survive a rung continue; none restarts.
    """
    import_plugins(plugin or [], [os.getcwd()])
    lora = job == "lora"
    if not lora:
        jobs.get(job, swept=True)  # before anything slow is imported
    from .._runs.starters import shares_of
    from ..tuning.comparison import compare
    from ..tuning.job import JobSweep, LoraSearch

    counts = {
        "max_iters": max_iters, "trials": trials, "repeats": repeats, "patience": patience, "width": width,
        "threads": threads, "iters_per_epoch": iters_per_epoch, "batch_size": batch_size, "micro_batch": micro_batch,
        "keep": keep,
    }  # fmt: skip
    for name, value in counts.items():
        at_least(name, 1 if value is None else value)
    on_cluster = cluster is not None or workers is not None or bool(cluster_option)
    jobs_own = {
        "--devices": devices, "--share": share, "--cluster": on_cluster, "--option": option, "--dataroot": dataroot,
        "--iters-per-epoch": iters_per_epoch, "--preset": preset != "default", "--repeats": repeats != 1,
        "--modes": modes not in (None, ["hfta"], ["serial"]),
    }  # fmt: skip
    loras_own = {
        "--base": base, "--held-out": held_out, "--tokenizer": tokenizer, "--micro-batch": micro_batch, "--keep": keep,
    }  # fmt: skip
    _refuse(job, jobs_own if lora else loras_own, devices or [], device, on_cluster)
    chosen = shares_of(devices, 1)[0].device if devices else choose_device(device)
    where = _directory(job, out, resume, share)
    found: JobSweep | LoraSearch
    if lora:
        found = LoraSearch(base, data, held_out, tokenizer, chosen, batch_size, micro_batch, keep or 3, seed)
    else:
        own = parse_options(option or [], jobs.get(job, swept=True).option_defaults(), job)
        found = JobSweep(job, preset, chosen, own, data, dataroot, iters_per_epoch, batch_size, seed)
    algorithm = algorithm or ("asha" if lora else "hyperband")
    found.check_metric(metric)
    _algorithm(algorithm, 1, eta, skip_last)  # refused before anything is made
    texts = modes or (["hfta"] if on_cluster or share or lora else ["hfta,serial"])
    wanted = list(dict.fromkeys(mode.strip() for text in texts for mode in text.split(",") if mode.strip()))
    most = 9 if preset == "quick" else 81
    epochs, count = max_iters or (3 if lora else most), trials or (16 if lora else most)

    def run(mode: str, repeat: int, folder: Path, again: bool) -> Sweep:
        made = _algorithm(algorithm, count, eta, skip_last)
        return _swept(
            found, made, epochs=epochs, mode=mode, out=folder, resume=again, seed=seed + repeat, preset=preset,
            space=space, metric=metric, goal=goal, patience=patience, width=width, threads=threads, devices=devices,
            device="cpu" if devices else chosen, share=share, quiet=quiet or as_json, allow_changed=allow_changed or (),
        )  # fmt: skip

    if on_cluster:
        plan = TuningOnCluster(job, command_line(context, OF_SEARCH), 4 if workers is None else workers)
        said = search_on_cluster(plan, where, cluster or "slurm", parameters(cluster_option or []), resume, as_json)
        _print(said, where, as_json)
        return 0 if said["same"] else FAILED
    comparison = compare(run, wanted, repeats, where, resume, _unavailable(wanted, chosen), exact=chosen == "cpu")
    comparison.save(where)
    told = comparison.to_dict()
    if lora:
        (sweep,) = comparison.sweeps[wanted[0]]
        told["files"] += [path.name for path in sweep.save_pretrained(where)] + ["README.md"]
    _print(told, where, as_json)
    if preset == "quick" and isinstance(found, JobSweep) and not as_json:
        batches = epochs * found.iters_per_epoch
        print(f"note: quick trains a model on {batches} batches at most: to compare modes, not for a final accuracy")
    return FAILED if comparison.failed else 0


def _refuse(job: str, others: Mapping[str, Any], devices: list[str], device: str, on_cluster: bool) -> None:
    """Refuse options that are not the job's, and what cannot be beside --devices."""
    if odd := next((name for name, value in others.items() if value), None):
        raise InvalidArgument(f"{odd} is not for tune {job}: leave it out")
    if devices and device != "auto":
        raise InvalidArgument(f"--device {device} together with --devices {','.join(devices)}: give one of them")
    if devices and on_cluster:
        raise InvalidArgument(
            "--devices together with --cluster: the scheduler gives each task its devices; --workers is their number"
        )


def _swept(found: JobSweep | LoraSearch, algorithm: Algorithm, *, space: str | None, preset: str, metric: str | None,
           **options: Any) -> Sweep:  # fmt: skip
    from ..tuning import Hyperband, sweep
    from ..tuning.job import read_space

    if isinstance(algorithm, Hyperband):
        count = algorithm.trials_for(options["epochs"])
    else:
        count = getattr(algorithm, "trials", 0)
    ranges = read_space(Path(space)) if space else found.space(preset, options["seed"], count)
    if options["goal"] is None and metric in (None, found.metric) and found.metric not in ("acc", "loss"):
        options["goal"] = found.goal  # which no name tells
    return sweep(
        space=ranges, algorithm=algorithm, metric=metric or found.metric,
        **found.arguments(options["epochs"]), **options,
    )  # fmt: skip


def _directory(job: str, out: str | None, resume: bool, share: bool) -> Path:
    if share:
        if out is None:
            raise InvalidArgument("--share needs a directory that all processes see: name it with --out")
        return Path(out)
    if out is not None:
        where = Path(out)
        if not resume and where.is_dir() and any(where.iterdir()):
            raise InvalidArgument(f"{where} is not empty; continue it with --resume or choose another --out")
        if resume and not where.is_dir():
            raise InvalidArgument(f"nothing to resume: there is no {where}; leave out --resume to start there")
        return where
    return default_out(f"tune-{job}", SWEEP_FILE, resume)


def _algorithm(name: str, trials: int, eta: int, skip_last: int) -> Algorithm:
    from ..tuning import ASHA, PBT, Hyperband, Random, SuccessiveHalving

    made: dict[str, Algorithm] = {
        "random": Random(trials), "hyperband": Hyperband(eta, skip_last), "asha": ASHA(trials, eta=eta),
        "halving": SuccessiveHalving(trials, eta=eta), "pbt": PBT(min(trials, 8)),
    }  # fmt: skip
    return made[name]


def _unavailable(modes: list[str], device: str) -> dict[str, str]:
    """Return the reasons why modes are unavailable here, by mode."""
    found = {}
    for mode in modes:
        why = get(mode).unavailable(device)
        if why is None and device != "cpu" and mode in ("concurrent", "mps", "mig"):
            why = "a search cannot run several processes on a GPU yet"
        if why is not None:
            found[mode] = why
    return found


def _print(found: Mapping[str, Any], out: Path, as_json: bool) -> None:
    """Show what `comparison.json` has."""
    files = [str(out / name) for name in found["files"]]
    if as_json:
        print(json.dumps({"out": str(out), **found, "files": files}, default=str))
        return
    from rich.console import Console
    from rich.table import Table

    print(found["best"])
    rows = found["rows"]
    heads = ("mode", "trials", "model-epochs", f"best {rows[0]['metric']}", "time to the best")
    table = Table(*heads, "times serial (95 %)", "sum of runtimes", box=None, pad_edge=False)
    for row in rows:
        table.add_row(
            row["mode"], str(row["trials"]), str(row["epochs"]), metric(row["best"]),
            "" if row["resumed"] else duration(row["seconds_to_best"]),
            ratio(row["speedup"], row["low"], row["high"]) if "speedup" in row else "",
            duration(row["sum_of_runtimes"]),
        )  # fmt: skip
    for mode, why in found["unavailable"].items():
        table.add_row(mode, "", "", "", "", f"unavailable: {why}", "")
    Console().print(table)
    for row in rows:
        if row["changed"]:
            print(f"note: {row['mode']} was resumed though something had changed: {row['changed']}")
    if len(rows) > 1 and not any("speedup" in row for row in rows):
        why = "a search was resumed" if any(row["resumed"] for row in rows) else "each search ran once (see --repeats)"
        print(f"note: no ratio of times is given, because {why}")
    if found["verdict"]:
        print(found["verdict"])
    print("\n".join(files))
