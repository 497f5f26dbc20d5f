# SPDX-License-Identifier: MIT
"""`dnnsuite train`: a training run from a configuration, with epochs, validation and checkpoints."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ._options import Json, Number, Text, Texts
from ._status import FAILED, say
from .run import parameters
from .train_on_cluster import Nodes, command_line, submit

if TYPE_CHECKING:
    from ..training import Experiment, Settings, Trained

__all__ = ["settings_of", "train"]

_PRESETS = ("quick", "full")


def train(
    context: typer.Context,
    arguments: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(
            metavar="[CONFIG.yaml] [KEY=VALUE]...",
            help="A file of configurations, sc20 or imagenet-resnet50, which ship [sc20], and keys to change.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[Text, typer.Option(help="Configuration in the file.  [default]")] = None,
    preset: Annotated[Text, typer.Option(help="quick (a minute on two cores) or full.  [full]")] = None,
    out: Annotated[Text, typer.Option(help="Output directory.  [dnnsuite-runs/CONFIG-TIME]")] = None,
    resume: Annotated[
        Text, typer.Option(help="auto (go on in --out, or begin), never, or a checkpoint's path.  [never]")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    dataroot: Annotated[
        Text, typer.Option(help="Folder with CIFAR-100, or with train/ and val/.  [data_path]")
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Print the keys with their values; train nothing.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="Print the names of the configurations.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print no log; it is in train.log.")] = False,
    cluster: Annotated[
        Text, typer.Option(help="Run as a task of a cluster: slurm, local or debug.  [slurm, with --nodes]")
    ] = None,
    nodes: Annotated[Number, typer.Option(help="Nodes of the cluster.  [1]")] = None,
    gpus_per_node: Annotated[
        Number, typer.Option(help="GPUs of a node, a process for each.  [none: a process per node]")
    ] = None,
    cluster_option: Annotated[
        Texts, typer.Option(help="Of the task, as timeout_min=60 or slurm_partition=gpu; repeatable.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Train a configuration: epochs, validation over all samples, checkpoints, metrics.csv.

    Under torchrun or srun the processes train one model. Ctrl-C saves and ends; --resume auto goes on.
    """
    from .. import training

    file, _ = _split(arguments or [])
    path = file or training.SHIPPED
    if list_:
        names = list(training.configurations(path))
        print(json.dumps(names) if as_json else "\n".join(names))
        return 0
    name = config or "default"
    settings = settings_of(arguments or [], name, preset)
    if cluster is not None or nodes is not None or gpus_per_node is not None or cluster_option:
        asked_of = Nodes(cluster or "slurm", nodes or 1, gpus_per_node or 0, parameters(cluster_option or []))
        return _submit(context, name, settings, asked_of, out, resume or "never", as_json)
    if show:
        return _show(settings, as_json)
    return _train(
        name, settings, Path(path).stem, preset, out, resume or "never", device, dataroot, quiet, as_json
    )


def _submit(
    context: typer.Context,
    name: str,
    settings: Settings,
    nodes: Nodes,
    out: str | None,
    resume: str,
    as_json: bool,
) -> int:
    from .._runs.folder import CLUSTER_FILE

    folder = Path(out) if out else _default_out(name, CLUSTER_FILE, resume)
    return submit(name, command_line(context), nodes, settings.batch_size, folder, resume, as_json)


def _split(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """(the file, key=value texts)."""
    from ..errors import InvalidArgument

    files = [each for each in arguments if "=" not in each]
    if len(files) > 1:
        raise InvalidArgument(f"{files[1]!r} is no key=value, and {files[0]} is the file already")
    return (files[0] if files else None), [each for each in arguments if "=" in each]


def settings_of(arguments: Sequence[str], name: str, preset: str | None) -> Settings:
    """The configuration `name` of the file in `arguments`, with the preset and the keys in force."""
    from ..errors import InvalidArgument
    from ..training.configurations import SHIPPED, configuration, overrides

    file, keys = _split(arguments)
    preset = preset or "full"
    if preset not in _PRESETS:
        raise InvalidArgument(f"unknown preset {preset!r}; accepted: {', '.join(_PRESETS)}")
    found = configuration(name, file or SHIPPED)
    return (found.quick() if preset == "quick" else found).changed(overrides(keys))


def _show(settings: Settings, as_json: bool) -> int:
    from ..training.settings import describe

    values = settings.to_dict()
    if as_json:
        print(json.dumps(values))
        return 0
    for key, _, meaning in describe():
        print(f"{key} = {_text(values[key])}  # {meaning}")
    return 0


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _train(
    name: str,
    settings: Settings,
    plan: str,
    preset: str | None,
    out: str | None,
    resume: str,
    device: str,
    dataroot: str | None,
    quiet: bool,
    as_json: bool,
) -> int:
    from .. import training
    from .._runs.failures import NotFinite
    from .._runs.interrupts import Interrupted
    from ..training.run import TRAINING_FILE

    data = training.find_data(settings, dataroot)

    def make(kind: str) -> Experiment:
        return training.experiment_of(name, settings, data, kind, plan)

    folder = Path(out) if out else _default_out(name, TRAINING_FILE, resume)
    again = f"dnnsuite train ... --resume auto --out {folder}"
    try:
        trained = training.run(
            make,
            folder,
            resume=resume,
            device=device,
            tensorboard=settings.log_to_tensorboard,
            quiet=quiet or not settings.log_to_screen,
            preset=preset or "",
            asked={"config": name, "settings": settings.to_dict(), "dataroot": dataroot},
        )
    except Interrupted as interrupted:
        say(f"saved in {folder}; continue: {again}" if settings.save_checkpoint else "nothing was saved")
        return _end(interrupted.exit_code)
    except NotFinite as error:
        say(f"error: {error}")
        return _end(FAILED)
    _tell(trained, as_json)
    return _end(0)


def _default_out(name: str, file: str, resume: str) -> Path:
    from .._runs.folder import OUT, default_out

    there = sorted(OUT.glob(f"{name}-[0-9]*/{file}"))
    return default_out(name, file, resume == "auto" and bool(there))


def _tell(trained: Trained, as_json: bool) -> None:
    if trained.record is None:
        return
    last = trained.history[-1]
    if as_json:
        print(json.dumps({"out": str(trained.folder), "data": trained.record.data, "last": last}))
        return
    accuracy = f", acc1 {last['acc1/valid']:.4f}" if "acc1/valid" in last else ""
    print(f"{trained.folder}: {len(trained.history)} epochs{accuracy} on {trained.record.data}")


def _end(status: int) -> int:
    """The status; one of several processes ends with it at once, for gloo may abort a normal shutdown."""
    from .._runs.ending import leave

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from ..jobs.distributed import finish

        finish()
        leave(status)
    return status
