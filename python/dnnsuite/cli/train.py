# SPDX-License-Identifier: MIT
"""`dnnsuite train`: a training run from a configuration, with epochs, validation and checkpoints."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import training
from .._runs.folder import CLUSTER_FILE, OUT, default_out
from .._runs.interrupts import Interrupted
from .._runs.record import Metric, RunRecord
from .._runs.spec import import_plugins
from .._runs.words import choose_device
from .._shown import metric, ratio
from ..errors import InvalidArgument
from ..training.settings import SHIPPED, configuration, is_job, overrides
from ._late import until_target, varying
from ._options import Json, Number, Real, Text, Texts
from ._status import FAILED, say, tell
from .on_cluster import Nodes, command_line, in_processes, submit
from .run import parameters


def train(
    context: typer.Context,
    arguments: Annotated[
        Texts,
        typer.Argument(
            metavar="[CONFIG.yaml | JOB] [KEY=VALUE]...",
            help="A file of configurations (or sc20, imagenet-resnet50) [sc20], or a job; then keys to change.",
        ),
    ] = None,
    config: Annotated[Text, "Configuration in the file.  [default]"] = None,
    preset: Annotated[Text, "quick (a minute on two cores), default or paper.  [default]"] = None,
    vary: Annotated[
        Texts,
        typer.Option(
            metavar="KEY=V1,V2,...",
            help="Train a model for each value, as one fused array. Repeatable: trains every combination, or, with "
            "--B N and N values per key, one value per model.",
        ),
    ] = None,
    B: Annotated[Number, "Models in the array; with --seeds, 1 trains them one after the other.  [all]"] = None,
    until: Annotated[Text, "End a job when its metric reaches the preset's target, or a value.  [all epochs]"] = None,
    seeds: Annotated[Number, "Train a job with N seeds, as one array.  [1]"] = None,
    batch_timeout: Annotated[
        Real, "Seconds that the model of a job with rollouts may take to make a batch.  [600]"
    ] = None,
    out: Annotated[Text, "Output directory.  [dnnsuite-runs/CONFIG-TIME]"] = None,
    resume: Annotated[Text, "auto (continue in --out, or start), never, or the path of a checkpoint.  [never]"] = None,
    allow_changed: Texts = None,
    evaluate: Annotated[bool, "Only validate the checkpoint given with --resume; write nothing."] = False,
    device: str = "auto",
    data: Text = None,
    dataroot: Annotated[Text, "Folder with CIFAR-100, or with train/ and val/.  [data_path]"] = None,
    show: Annotated[bool, "Print the keys with their values; train nothing."] = False,
    list_: Annotated[bool, typer.Option("--list", help="Print the names of the configurations.")] = False,
    quiet: bool = False,
    nproc: Annotated[Number, "Train data parallel in N processes on this machine, like torchrun.  [1]"] = None,
    shard: Annotated[bool, "Shard the model of a job over the processes, if it does not fit into each."] = False,
    cluster: Annotated[Text, "Run as a task of a cluster.  [slurm, with --nodes]"] = None,
    nodes: Annotated[Number, "Nodes of the cluster.  [1]"] = None,
    gpus_per_node: Annotated[Number, "GPUs of a node, with one process each.  [none: one process per node]"] = None,
    cluster_option: Texts = None,
    plugin: Texts = None,
    as_json: Json = False,
) -> int:
    """Train a configuration: epochs, validation, checkpoints.

    The metrics of every epoch, over all validation samples, are written to metrics.csv. Under torchrun or srun all
    processes train one model. Ctrl-C saves and stops; --resume continues. With --vary, several configurations train
    as one array.
    """
    import_plugins(plugin or [], [os.getcwd()])
    file, keys = split(arguments or [])

    if nproc is not None and not show and "WORLD_SIZE" not in os.environ:
        if file is not None and is_job(file):  # what is wrong is said once, before processes and data
            training.values_of_job(file, preset or "default", overrides(keys), device, nproc)
        return in_processes(nproc, context, seeds)

    if file is not None and is_job(file):
        refused = {
            "--config": config, "--vary": vary, "--evaluate": evaluate, "--cluster": cluster,
            "--nodes": nodes, "--gpus-per-node": gpus_per_node,
            "--cluster-option": cluster_option, "--list": list_,
        }  # fmt: skip
        if odd := next((name for name, value in refused.items() if value), None):
            raise InvalidArgument(f"{odd} is for configurations, and {file} is a job: leave it out")
        if show:
            _, values = training.values_of_job(file, preset or "default", overrides(keys), device)
            print(json.dumps(values) if as_json else "\n".join(f"{key} = {_text(own)}" for key, own in values.items()))
            return 0
        if B not in (None, 1, seeds or 1):
            raise InvalidArgument(
                f"--B {B}: a job trains its --seeds {seeds or 1} models as one array, or with --B 1 one after the other"
            )
        if shard and int(os.environ.get("WORLD_SIZE", "1")) < 2:
            raise InvalidArgument(
                "--shard splits a model over processes, and there is one: add --nproc 2, or use torchrun"
            )
        options = file, preset or "default", device, data or "auto", dataroot, until, shard, batch_timeout
        of_job = functools.partial(_of_job, *options)
        how = out, resume or "never", allow_changed or [], quiet, as_json
        if B == 1 and (seeds or 1) > 1:
            _, values = training.values_of_job(file, preset or "default", overrides(keys), device)
            each = range(values["seed"], values["seed"] + (seeds or 1))
            return _one_by_one([(seed, of_job({**overrides(keys), "seed": str(seed)}, 1)) for seed in each], *how)
        return _train(of_job(overrides(keys), seeds or 1), *how)
    of_jobs = {"--until": until, "--seeds": seeds, "--shard": shard or None, "--batch-timeout": batch_timeout}
    if odd := next((option for option, value in of_jobs.items() if value is not None), None):
        raise InvalidArgument(
            f"{odd} is for jobs, which have a metric and a "
            f"target, and {file or 'sc20'} is a file of configurations: name a job, or use --vary"
        )
    path = file or training.SHIPPED
    if list_:
        names = list(training.configurations(path))
        print(json.dumps(names) if as_json else "\n".join(names))
        return 0
    name = config or "default"
    settings = settings_of(with_data(arguments, data), name, preset)
    variants = (
        varying.varied(settings, varying.vary_of(vary or []), B) if vary or B is not None else []
    )  # none for a single model
    if cluster is not None or nodes is not None or gpus_per_node is not None or cluster_option:
        asked_of = Nodes(cluster or "slurm", nodes or 1, gpus_per_node or 0, parameters(cluster_option or []))
        folder = Path(out) if out else _default_out(name, CLUSTER_FILE, resume or "never")
        words = command_line(context)
        return submit(name, words, asked_of, settings.batch_size, folder, resume or "never", as_json)
    if show:
        return _show([own for _, own in variants] or [settings], as_json)
    plan = Path(path).stem
    if evaluate:
        if variants:
            raise InvalidArgument("--evaluate is for one model: leave out --vary and --B, and name models/N/best.pt")
        return _evaluate((name, settings, plan), dataroot, device, out, resume, quiet, as_json)
    quiet = quiet or not settings.log_to_screen
    asked = _of_configuration(name, settings, variants, plan, preset or "", device, dataroot)
    return _train(asked, out, resume or "never", allow_changed or [], quiet, as_json)


@dataclass(frozen=True)
class _Asked:
    """One run or array, as the command line has it.

    Attributes:
        record: options for the run's record.
        made: function that looks for the data, and returns one that makes the experiment for a device.
        saves: True if the run writes checkpoints.
        events: True if the run writes TensorBoard's files.
    """

    name: str
    preset: str
    device: str
    is_array: bool
    record: dict[str, Any]
    made: Callable[[], Callable[[str], training.Experiment | training.ExperimentArray]]
    saves: bool = True
    events: bool = False


def _of_configuration(
    name: str,
    settings: training.Settings,
    variants: varying.Variants,
    plan: str,
    preset: str,
    device: str,
    dataroot: str | None,
) -> _Asked:
    def made() -> Callable[[str], training.Experiment | training.ExperimentArray]:
        if not variants:
            data = training.find_data(settings, dataroot)
            return lambda kind: training.experiment_of(name, settings, data, kind, plan)
        each = training.data_of(variants, dataroot)
        return lambda kind: training.array_of(name, variants, each, kind, plan)

    record = {"config": name, "settings": settings.to_dict(), "dataroot": dataroot}
    more = {"vary": [own for own, _ in variants]} if variants else {}
    saves, events = settings.save_checkpoint, settings.log_to_tensorboard
    return _Asked(name, preset, device, bool(variants), {**record, **more}, made, saves, events)


def _of_job(
    name: str, preset: str, device: str, data: str, dataroot: str | None, until: str | None, shard: bool,
    batch_timeout_s: float | None, keys: dict[str, str], seeds: int,
) -> _Asked:  # fmt: skip
    of_all: dict[str, Any] = {"data": data, "dataroot": dataroot, "until": until}

    def make(kind: str) -> training.Experiment | training.ExperimentArray:
        if seeds > 1:
            return training.array_of_job(name, preset, keys, kind, seeds, **of_all)
        own: dict[str, Any] = {**of_all, "shard": shard, "batch_timeout_s": batch_timeout_s}
        return training.experiment_of_job(name, preset, keys, kind, **own)

    more = {"until": until, "shard": shard, "data": "" if data == "auto" else data}
    record = {"job": name, "keys": keys, "dataroot": dataroot, "seeds": seeds}
    record |= {option: value for option, value in more.items() if value}
    return _Asked(name, preset, device, seeds > 1, record, lambda: make)


def split(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Split the arguments into (the file, key=value texts)."""
    files = [each for each in arguments if "=" not in each]
    if len(files) > 1:
        raise InvalidArgument(f"{files[1]!r} is not key=value, and {files[0]} is already the job or file")
    return (files[0] if files else None), [each for each in arguments if "=" in each]


def with_data(arguments: Sequence[str] | None, data: str | None) -> list[str]:
    """Return the arguments with `--data`, which is a key of configurations."""
    return [*(arguments or []), *([] if data is None else [f"data={data}"])]


def settings_of(arguments: Sequence[str], name: str, preset: str | None) -> training.Settings:
    """Return the configuration `name` of the file in `arguments`, with the preset and the keys in force."""
    file, keys = split(arguments)
    found = configuration(name, file or SHIPPED)
    return (found.quick() if preset == "quick" else found).changed(overrides(keys))


def _show(each: Sequence[training.Settings], as_json: bool) -> int:
    """Print the keys, of an array with the values of all models."""
    from ..training.settings import describe

    values = [own.to_dict() for own in each]
    if as_json:
        print(json.dumps(values if len(values) > 1 else values[0]))
        return 0
    for key, _, meaning in describe():
        found = list(dict.fromkeys(_text(own[key]) for own in values))
        texts = [_text(own[key]) for own in values] if len(found) > 1 else found
        print(f"{key} = {' | '.join(texts)}  # {meaning}")
    return 0


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _train(asked: _Asked, out: str | None, resume: str, allow_changed: list[str], quiet: bool, as_json: bool) -> int:
    from .._runs.failures import NotFinite
    from ..training.experiment_run import TRAINING_FILE

    make = asked.made()
    folder = Path(out) if out else _default_out(asked.name, TRAINING_FILE, resume)
    again = f"dnnsuite train ... --resume auto --out {folder}"
    try:
        trained = training.run(
            make,
            folder,
            resume=resume,
            device=asked.device,
            tensorboard=asked.events,
            quiet=quiet,
            preset=asked.preset,
            asked=asked.record,
            allow_changed=allow_changed,
        )
    except Interrupted as interrupted:
        say(f"saved in {folder}; continue: {again}" if asked.saves else "nothing was saved")
        return _end(interrupted.exit_code)
    except NotFinite as error:
        say(f"error: {error}")
        return _end(FAILED)
    _tell(trained, asked.is_array, as_json)
    until = trained.record.details.get("until") if trained.record is not None else None
    return _end(FAILED if until and trained.record and len(until["reached"]) < trained.record.B else 0)


def _one_by_one(
    each: Sequence[tuple[int, _Asked]], out: str | None, resume: str, allow_changed: list[str], quiet: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Train the seeds one after the other, each in a folder of its own; those that are done are left as they are."""
    from ..training.experiment_run import TRAINING_FILE

    if resume not in ("never", "auto"):
        raise InvalidArgument(f"--resume {resume}: with --seeds, accepted: never, auto")
    if resume == "auto" and out is None:
        raise InvalidArgument("--resume auto of several seeds needs --out, the folder to continue in")
    folder = Path(out) if out else default_out(each[0][1].name, TRAINING_FILE, False)
    ended = 0
    for seed, one in each:
        status = _train(one, str(folder / f"seed-{seed}"), resume, allow_changed, quiet, as_json)
        if status not in (0, FAILED):
            return status
        ended = max(ended, status)
    if not as_json and (told := until_target.over_records(folder)):
        tell(f"{folder}: {told}")
    return ended


def _evaluate(
    of: tuple[str, training.Settings, str], dataroot: str | None, device: str, out: str | None, resume: str | None,
    quiet: bool, as_json: bool,
) -> int:  # fmt: skip
    """Validate a checkpoint and print what was found."""
    from ..training.lines import accuracies
    from ..training.saver import CHECKPOINT

    name, settings, plan = of
    path = resume if resume not in (None, "never", "auto") else f"{out}/{CHECKPOINT}" if out else None
    if path is None:
        raise InvalidArgument("--evaluate needs a checkpoint: --resume FILE, or the --out of a run")
    if not Path(path).is_file():
        raise InvalidArgument(f"--evaluate: {path}: no such file")
    data = training.find_data(settings, dataroot)
    made = training.experiment_of(name, settings, data, choose_device(device), plan)
    found = training.evaluate(made, path, device=device, quiet=quiet)
    if int(os.environ.get("RANK", "0")) == 0:
        told = {"checkpoint": path, "data": data.source, "samples": len(data.valid), **found}
        print(json.dumps(told) if as_json else f"{path}: {accuracies(found)[3:]} on {data.source}")
    return _end(0)


def _default_out(name: str, file: str, resume: str) -> Path:
    return default_out(name, file, resume == "auto" and any(OUT.glob(f"{name}-[0-9]*/{file}")))


def _tell(trained: training.Trained, is_array: bool, as_json: bool) -> None:
    """Print the result of a run, or of each model of an array."""
    from ..training.history import read_models

    record = trained.record
    if record is None:
        return
    own: dict[str, Any] = {"out": str(trained.folder), "data": record.data}
    models = read_models(trained.folder) if is_array else []
    speedup = next((each for each in record.metrics if each.name == "speedup"), None) if is_array else None
    if as_json:
        more = {"speedup": speedup.value if speedup else None, "models": models}
        print(json.dumps({**own, **(more if is_array else {"last": trained.history[-1]}), **_to_target(record)}))
        return
    for model in models:
        what = ", ".join(_scores(model)) if model["status"] == "ok" else f"ended: {model['status']}"
        tell(f"model {model['model']}, {model['name']}: {model['epochs']} epochs, {what}")
    target = f"; {told}" if (told := until_target.sentence(record)) else ""
    if is_array:
        tell(f"{trained.folder}: {len(models)} models{_times(speedup)} on {record.data}{target}")
    else:
        scores = "".join(f", {own}" for own in _scores(trained.history[-1]))
        tell(f"{trained.folder}: {len(trained.history)} epochs{scores} on {record.data}{target}")


def _to_target(record: RunRecord) -> dict[str, Any]:
    until = record.details.get("until")
    own = [each for each in record.metrics if each.replica is None and each.name.endswith(" to target")]
    means = {each.name: {"mean": each.value, "low": each.low, "high": each.high} for each in own}
    return {"until": {**until, **means}} if until else {}


def _scores(row: Mapping[str, Any]) -> list[str]:
    """Measures of an epoch's validation with their names: those of a job, else the loss and the accuracy."""
    values = {key.removesuffix("/valid"): row[key] for key in row if key.endswith("/valid") and row[key] != ""}
    own = values.keys() - {"seconds", "loss", "acc1", "acc5"} or {"loss", "acc1"}
    return [f"{name} {metric(value)}" for name, value in values.items() if name in own]


_WIDEST = 2.0  # factor between the ends of an interval that tells nothing where 1 is within


def _times(speedup: Metric | None) -> str:
    if speedup is None:
        return ""
    low, high = speedup.low, speedup.high
    if low is not None and high is not None and low <= 1 <= high > _WIDEST * low:
        return ", after so few epochs it is not known how much faster than one after another,"
    told = ratio(speedup.value, speedup.low, speedup.high)
    sure = "" if speedup.low is not None else " (too few epochs for an interval)"
    return f", {told} times as fast as one after another{sure},"


def _end(status: int) -> int:
    """Return the status; of several processes each ends with it at once, because gloo may abort a normal shutdown."""
    from .._runs.failures import leave

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from ..jobs.distributed import finish

        finish()
        leave(status)
    return status
