# SPDX-License-Identifier: MIT
"""`dnnsuite train`: a training run from a configuration, with epochs, validation and checkpoints."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from .._runs.plugins import import_plugins
from .._shown import metric, ratio
from ..errors import InvalidArgument
from ._options import AllowChanged, Json, Number, Text, Texts
from ._status import FAILED, say, tell
from .run import parameters
from .train_on_cluster import Nodes, command_line, submit

if TYPE_CHECKING:
    from .._runs.record import Metric, RunRecord
    from ..training import Experiment, ExperimentArray, Settings, Trained
    from ..training.array import Variants


def train(
    context: typer.Context,
    arguments: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(
            metavar="[CONFIG.yaml | JOB] [KEY=VALUE]...",
            help="A file of configurations (or sc20, imagenet-resnet50) [sc20], or a job; then keys to change.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[Text, typer.Option(help="Configuration in the file.  [default]")] = None,
    preset: Annotated[Text, typer.Option(help="quick (a minute on two cores), default or paper.  [default]")] = None,
    vary: Annotated[
        Texts,
        typer.Option(
            metavar="KEY=V1,V2,...",
            help="Train a model for each value, as one fused array. Repeatable: trains every combination, or, with "
            "--B N and N values per key, one value per model.",
        ),
    ] = None,
    B: Annotated[
        Number, typer.Option("--B", help="Models in the array; with --seeds, 1 trains them one after the other.  [all]")
    ] = None,
    until: Annotated[
        Text, typer.Option(help="End a job when its metric reaches the preset's target, or a value.  [all epochs]")
    ] = None,
    seeds: Annotated[Number, typer.Option(help="Train a job with N seeds, as one array.  [1]")] = None,
    batch_timeout: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="Seconds that the model of a job with rollouts may take to make a batch.  [600]"),
    ] = None,
    out: Annotated[Text, typer.Option(help="Output directory.  [dnnsuite-runs/CONFIG-TIME]")] = None,
    resume: Annotated[
        Text, typer.Option(help="auto (continue in --out, or start), never, or the path of a checkpoint.  [never]")
    ] = None,
    allow_changed: AllowChanged = None,
    evaluate: Annotated[
        bool, typer.Option("--evaluate", help="Only validate the checkpoint given with --resume; write nothing.")
    ] = False,
    device: Annotated[str, typer.Option()] = "auto",
    data: Annotated[Text, typer.Option()] = None,
    dataroot: Annotated[Text, typer.Option(help="Folder with CIFAR-100, or with train/ and val/.  [data_path]")] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the keys with their values; train nothing.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Print the names of the configurations.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet")] = False,
    nproc: Annotated[
        Number, typer.Option(help="Train data parallel in N processes on this machine, like torchrun.  [1]")
    ] = None,
    shard: Annotated[
        bool, typer.Option("--shard", help="Shard the model of a job over the processes, if it does not fit into each.")
    ] = False,
    cluster: Annotated[Text, typer.Option(help="Run as a task of a cluster.  [slurm, with --nodes]")] = None,
    nodes: Annotated[Number, typer.Option(help="Nodes of the cluster.  [1]")] = None,
    gpus_per_node: Annotated[
        Number, typer.Option(help="GPUs of a node, with one process each.  [none: one process per node]")
    ] = None,
    cluster_option: Annotated[Texts, typer.Option()] = None,
    plugin: Annotated[Texts, typer.Option()] = None,
    as_json: Json = False,
) -> int:
    """Train a configuration: epochs, validation, checkpoints.

    The metrics of every epoch, over all validation samples, are written to metrics.csv. Under torchrun or srun all
    processes train one model. Ctrl-C saves and stops; --resume continues. With --vary, several configurations train
    as one array.
    """
    from .. import training

    import_plugins(plugin or [], [os.getcwd()])
    file, keys = split(arguments or [])
    from ..training.settings import is_job, overrides

    if nproc is not None and not show and "WORLD_SIZE" not in os.environ:
        if file is not None and is_job(file):  # what is wrong is said once, before processes and data
            training.values_of_job(file, preset or "default", overrides(keys), device, nproc)
        return _in_processes(nproc, context, seeds)

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
        options = overrides(keys), preset or "default", device, data or "auto", dataroot
        of_job = _AskedJob(file, *options, until, seeds or 1, shard, batch_timeout)
        if B == 1 and (seeds or 1) > 1:
            return _one_by_one(of_job, out, resume or "never", allow_changed or [], quiet, as_json)
        return _train(of_job, out, resume or "never", allow_changed or [], quiet, as_json)
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
    variants = _variants(settings, vary or [], B)
    if cluster is not None or nodes is not None or gpus_per_node is not None or cluster_option:
        asked_of = Nodes(cluster or "slurm", nodes or 1, gpus_per_node or 0, parameters(cluster_option or []))
        return _submit(context, name, settings, asked_of, out, resume or "never", as_json)
    if show:
        return _show([own for _, own in variants] or [settings], as_json)
    asked = _Asked(name, settings, variants, Path(path).stem, preset or "", device, dataroot)
    if evaluate:
        return _evaluate(asked, out, resume, quiet, as_json)
    quiet = quiet or not settings.log_to_screen
    return _train(asked, out, resume or "never", allow_changed or [], quiet, as_json)


def _in_processes(nproc: int, context: typer.Context, seeds: int | None) -> int:
    """Run the same command in `nproc` processes that train one model, and return its status."""
    import socket
    import subprocess
    import time

    if nproc < 1:
        raise InvalidArgument(f"--nproc {nproc}: must be at least 1")
    if nproc > 1 and (seeds or 1) > 1:
        raise InvalidArgument(f"--seeds {seeds} are an array, which trains in one process: leave out --nproc")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "dnnsuite", "train", *command_line(context, ("nproc",))]
    place = {"WORLD_SIZE": str(nproc), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    each = [
        subprocess.Popen(command, env={**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(nproc)
    ]
    try:
        while None in (ended := [one.poll() for one in each]) and not any(ended):
            time.sleep(0.05)
        for one in each:  # where one has failed, the others end soon, or wait for it for ever
            one.wait(None if not any(ended) else _PATIENCE_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        for one in each:
            if one.poll() is None:
                one.terminate()
    return next((code for code in [*ended, *(one.wait() for one in each)] if code), 0)


_PATIENCE_S = 30.0


@dataclass(frozen=True)
class _Asked:
    """One run, or the array of `variants`, as the command line has it."""

    name: str
    settings: Settings
    variants: Variants
    plan: str
    preset: str
    device: str
    dataroot: str | None

    def made(self) -> Callable[[str], Experiment | ExperimentArray]:
        """Return a function that makes the experiment for a device; the data are looked for now."""
        from .. import training

        if not self.variants:
            data = training.find_data(self.settings, self.dataroot)
            return lambda kind: training.experiment_of(self.name, self.settings, data, kind, self.plan)
        each = training.data_of(self.variants, self.dataroot)
        return lambda kind: training.array_of(self.name, self.variants, each, kind, self.plan)

    @property
    def saves(self) -> bool:
        """True if the run writes checkpoints."""
        return self.settings.save_checkpoint

    @property
    def events(self) -> bool:
        """True if the run writes TensorBoard's files."""
        return self.settings.log_to_tensorboard

    def record(self) -> dict[str, Any]:
        """Return the options for the run's record."""
        models = [name for name, _ in self.variants]
        asked = {"config": self.name, "settings": self.settings.to_dict(), "dataroot": self.dataroot}
        return {**asked, **({"vary": models} if models else {})}


@dataclass(frozen=True)
class _AskedJob:
    """One run of a job, as the command line has it."""

    name: str
    keys: dict[str, str]
    preset: str
    device: str
    data: str
    dataroot: str | None
    until: str | None = None
    seeds: int = 1
    shard: bool = False
    batch_timeout_s: float | None = None
    saves, events = True, False

    @property
    def variants(self) -> bool:
        """True for an array."""
        return self.seeds > 1

    def made(self) -> Callable[[str], Experiment | ExperimentArray]:
        """Return a function that makes the experiment, or the array of seeds, for a device."""
        from .. import training

        of = (self.name, self.preset, self.keys)
        more: dict[str, Any] = {"data": self.data, "dataroot": self.dataroot, "until": self.until}
        if self.seeds == 1:
            more |= {"shard": self.shard, "batch_timeout_s": self.batch_timeout_s}
            return lambda kind: training.experiment_of_job(*of, kind, **more)
        return lambda kind: training.array_of_job(*of, kind, self.seeds, **more)

    def record(self) -> dict[str, Any]:
        """Return the options for the run's record."""
        asked = {"job": self.name, "keys": self.keys, "dataroot": self.dataroot, "seeds": self.seeds}
        more = {"until": self.until, "shard": self.shard, "data": "" if self.data == "auto" else self.data}
        return {**asked, **{name: value for name, value in more.items() if value}}


def _variants(settings: Settings, vary: Sequence[str], B: int | None) -> Variants:
    """Return the configurations of an array; none for a single model."""
    from ..training.array import varied, vary_of

    return varied(settings, vary_of(vary), B) if vary or B is not None else []


def _submit(
    context: typer.Context, name: str, settings: Settings, nodes: Nodes, out: str | None, resume: str, as_json: bool
) -> int:
    from .._runs.folder import CLUSTER_FILE

    folder = Path(out) if out else _default_out(name, CLUSTER_FILE, resume)
    return submit(name, command_line(context), nodes, settings.batch_size, folder, resume, as_json)


def split(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Split the arguments into (the file, key=value texts)."""

    files = [each for each in arguments if "=" not in each]
    if len(files) > 1:
        raise InvalidArgument(f"{files[1]!r} is not key=value, and {files[0]} is already the job or file")
    return (files[0] if files else None), [each for each in arguments if "=" in each]


def with_data(arguments: Sequence[str] | None, data: str | None) -> list[str]:
    """Return the arguments with `--data`, which is a key of configurations."""
    return [*(arguments or []), *([] if data is None else [f"data={data}"])]


def settings_of(arguments: Sequence[str], name: str, preset: str | None) -> Settings:
    """Return the configuration `name` of the file in `arguments`, with the preset and the keys in force."""
    from ..training.settings import SHIPPED, configuration, overrides

    file, keys = split(arguments)
    found = configuration(name, file or SHIPPED)
    return (found.quick() if preset == "quick" else found).changed(overrides(keys))


def _show(each: Sequence[Settings], as_json: bool) -> int:
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


def _train(
    asked: _Asked | _AskedJob, out: str | None, resume: str, allow_changed: list[str], quiet: bool, as_json: bool
) -> int:
    from .. import training
    from .._runs.failures import NotFinite
    from .._runs.interrupts import Interrupted
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
            asked=asked.record(),
            allow_changed=allow_changed,
        )
    except Interrupted as interrupted:
        say(f"saved in {folder}; continue: {again}" if asked.saves else "nothing was saved")
        return _end(interrupted.exit_code)
    except NotFinite as error:
        say(f"error: {error}")
        return _end(FAILED)
    _tell(trained, asked, as_json)
    return _end(FAILED if _missed([trained]) else 0)


def _one_by_one(
    asked: _AskedJob, out: str | None, resume: str, allow_changed: list[str], quiet: bool, as_json: bool
) -> int:
    """Train the seeds one after the other, each in a folder of its own; those that are done are left as they are."""
    from .. import training
    from .._runs.folder import default_out
    from ..training.experiment_run import TRAINING_FILE
    from ..training.record import over_records

    if resume not in ("never", "auto"):
        raise InvalidArgument(f"--resume {resume}: with --seeds, accepted: never, auto")
    if resume == "auto" and out is None:
        raise InvalidArgument("--resume auto of several seeds needs --out, the folder to continue in")
    _, values = training.values_of_job(asked.name, asked.preset, asked.keys, asked.device)
    folder = Path(out) if out else default_out(asked.name, TRAINING_FILE, False)
    ended = 0
    for seed in range(values["seed"], values["seed"] + asked.seeds):
        one = replace(asked, keys={**asked.keys, "seed": str(seed)}, seeds=1)
        status = _train(one, str(folder / f"seed-{seed}"), resume, allow_changed, quiet, as_json)
        if status not in (0, FAILED):
            return status
        ended = max(ended, status)
    if not as_json and (told := over_records(folder)):
        tell(f"{folder}: {told}")
    return ended


def _missed(each: Sequence[Trained]) -> bool:
    """True if a run was to reach a target and a model did not."""
    records = [one.record for one in each if one.record is not None and "until" in one.record.details]
    return any(len(record.details["until"]["reached"]) < record.B for record in records)


def _evaluate(asked: _Asked, out: str | None, resume: str | None, quiet: bool, as_json: bool) -> int:
    """Validate a checkpoint and print what was found."""
    from .. import training
    from .._runs.device import choose_device
    from ..training.lines import accuracies
    from ..training.saver import CHECKPOINT

    if asked.variants:
        raise InvalidArgument("--evaluate is for one model: leave out --vary and --B, and name models/N/best.pt")
    path = resume if resume not in (None, "never", "auto") else f"{out}/{CHECKPOINT}" if out else None
    if path is None:
        raise InvalidArgument("--evaluate needs a checkpoint: --resume FILE, or the --out of a run")
    if not Path(path).is_file():
        raise InvalidArgument(f"--evaluate: {path}: no such file")
    data = training.find_data(asked.settings, asked.dataroot)
    made = training.experiment_of(asked.name, asked.settings, data, choose_device(asked.device), asked.plan)
    found = training.evaluate(made, path, device=asked.device, quiet=quiet)
    if int(os.environ.get("RANK", "0")) == 0:
        told = {"checkpoint": path, "data": data.source, "samples": len(data.valid), **found}
        print(json.dumps(told) if as_json else f"{path}: {accuracies(found)[3:]} on {data.source}")
    return _end(0)


def _default_out(name: str, file: str, resume: str) -> Path:
    from .._runs.folder import OUT, default_out

    return default_out(name, file, resume == "auto" and any(OUT.glob(f"{name}-[0-9]*/{file}")))


def _tell(trained: Trained, asked: _Asked | _AskedJob, as_json: bool) -> None:
    if trained.record is None:
        return
    if asked.variants:
        _tell_of_models(trained, as_json)
        return
    last = trained.history[-1]
    if as_json:
        own = {"out": str(trained.folder), "data": trained.record.data, "last": last}
        print(json.dumps({**own, **_to_target(trained.record)}))
        return
    scores = "".join(f", {own}" for own in _scores(last))
    tell(f"{trained.folder}: {len(trained.history)} epochs{scores} on {trained.record.data}{_target(trained)}")


def _tell_of_models(trained: Trained, as_json: bool) -> None:
    from ..training.history import read_models

    assert trained.record is not None
    models = read_models(trained.folder)
    speedup = next((each for each in trained.record.metrics if each.name == "speedup"), None)
    if as_json:
        times = speedup.value if speedup else None
        found = {"out": str(trained.folder), "data": trained.record.data, "speedup": times, "models": models}
        print(json.dumps({**found, **_to_target(trained.record)}))
        return
    for model in models:
        what = ", ".join(_scores(model)) if model["status"] == "ok" else f"ended: {model['status']}"
        tell(f"model {model['model']}, {model['name']}: {model['epochs']} epochs, {what}")
    tell(f"{trained.folder}: {len(models)} models{_times(speedup)} on {trained.record.data}{_target(trained)}")


def _to_target(record: RunRecord) -> dict[str, Any]:
    until = record.details.get("until")
    own = [each for each in record.metrics if each.replica is None and each.name.endswith(" to target")]
    means = {each.name: {"mean": each.value, "low": each.low, "high": each.high} for each in own}
    return {"until": {**until, **means}} if until else {}


def _target(trained: Trained) -> str:
    from ..training.record import sentence

    told = sentence(trained.record) if trained.record is not None else ""
    return f"; {told}" if told else ""


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
    from .._runs.ending import leave

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from ..jobs.distributed import finish

        finish()
        leave(status)
    return status
