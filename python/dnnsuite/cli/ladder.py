# SPDX-License-Identifier: MIT
"""`dnnsuite ladder`: what each optimisation of a training run brings on this device."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Optional

import typer

from ._options import Json, Text
from .train import settings_of


def ladder(
    arguments: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(
            metavar="[CONFIG.yaml] [KEY=VALUE]...",
            help="A file of configurations (default: SC20's, which ship), and keys to change.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[str, typer.Option(help="Configuration in the file.")] = "bs256",
    preset: Annotated[Text, typer.Option(help="quick (an eighth of the width), default or paper.  [default]")] = None,
    rungs: Annotated[Text, typer.Option(help="Some of fp32,+amp,+nhwc,+extra,+compile.  [all]")] = None,
    rounds: Annotated[int, typer.Option(help="Measurements of each rung.")] = 10,
    steps: Annotated[int, typer.Option(help="Iterations of a measurement.")] = 10,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    dataroot: Annotated[Text, typer.Option(help="Folder with CIFAR-100.  [data_path]")] = None,
    out: Annotated[Optional[Path], typer.Option(help="Folder for ladder.csv.")] = None,  # noqa: UP045
    as_json: Json = False,
) -> int:
    """Measure the gain of amp, nhwc, extra and compile.

    Rungs fp32, +amp, +nhwc, +extra and +compile are measured in turns: images per second, the gain of each rung, and
    the time of each phase.
    """
    from .. import training
    from ..training.ladder import RUNGS, climb, save_ladder, table

    settings = settings_of(arguments or [], config, preset)
    data = training.find_data(settings, dataroot)
    names = [each.strip() for each in rungs.split(",")] if rungs else list(RUNGS)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    found = climb(
        settings,
        data,
        rungs=names,
        device=device,
        rounds=rounds,
        steps=steps,
        tell=lambda line: print(f"dnnsuite: {line}", file=sys.stderr),
    )
    if out is not None:
        save_ladder(out, found)
    print(json.dumps([asdict(rung) for rung in found]) if as_json else table(found))
    return 0 if any(rung.status == "ok" for rung in found) else 1
