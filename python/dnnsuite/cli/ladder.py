# SPDX-License-Identifier: MIT
"""`dnnsuite ladder`: what each optimisation of a training run brings on this device."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Optional

import typer

from .._runs.plugins import import_plugins
from ._options import Json, Quiet, Text, Texts
from ._status import say
from .train import settings_of, split, with_data


def ladder(
    arguments: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(
            metavar="[CONFIG.yaml | JOB] [KEY=VALUE]...",
            help="A file of configurations (default: SC20's, which ship), or a job, and keys to change.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[str, typer.Option(help="Configuration in the file.")] = "bs256",
    preset: Annotated[Text, typer.Option(help="quick (an eighth of the width), default or paper.  [default]")] = None,
    rungs: Annotated[Text, typer.Option(help="Rungs to measure, e.g. fp32,+amp.  [all]")] = None,
    repeats: Annotated[int, typer.Option(help="Measurements of each rung, in turns.")] = 10,
    steps: Annotated[int, typer.Option(help="Iterations of a measurement.")] = 10,
    device: Annotated[str, typer.Option()] = "auto",
    data: Annotated[Text, typer.Option()] = None,
    dataroot: Annotated[Text, typer.Option(help="Folder with CIFAR-100.  [data_path]")] = None,
    out: Annotated[Optional[Path], typer.Option(help="Folder for ladder.csv.")] = None,  # noqa: UP045
    plugin: Annotated[Texts, typer.Option()] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> int:
    """Measure the gain of amp, nhwc, extra and compile.

    Rungs fp32, +amp, +nhwc, +extra and +compile are measured in turns: images per second, the gain of each rung, and
    the time of each phase.
    """
    from .. import training
    from ..training.configurations import is_job, overrides

    import_plugins(plugin or [], [os.getcwd()])
    file, keys = split(arguments or [])
    job = file if file is not None and is_job(file) else None
    settings = None if job else settings_of(with_data(arguments, data), config, preset)

    from ..training.ladder import RUNGS, climb, of_configuration, of_job, save_ladder, table  # imports torch

    if settings is None:
        made_by = of_job(str(job), preset or "default", overrides(keys), data or "auto", dataroot)
    else:
        made_by = of_configuration(settings, training.find_data(settings, dataroot))
    names = [each.strip() for each in rungs.split(",")] if rungs else list(RUNGS)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    found = climb(
        made_by, rungs=names, device=device, rounds=repeats, steps=steps, tell=(lambda line: None) if quiet else say
    )
    if out is not None:
        save_ladder(out, found)
    print(json.dumps([asdict(rung) for rung in found]) if as_json else table(found, "samples/s" if job else "img/s"))
    return 0 if any(rung.status == "ok" for rung in found) else 1
