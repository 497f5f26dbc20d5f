# SPDX-License-Identifier: MIT
"""`dnnsuite ladder`: what each optimisation of a training run brings on this device."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from .._runs.plugins import import_plugins
from ._options import Json, Quiet, Text, Texts
from ._status import say
from .train import settings_of, split, with_data

if TYPE_CHECKING:
    from ..training.ladder import Blocks, Rung

LADDER_FILE = "ladder.json"


def ladder(
    arguments: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(
            metavar="[CONFIG.yaml | JOB] [KEY=VALUE]...",
            help="A file of configurations (default: those of SC20), or a job, and keys to change.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[str, typer.Option(help="Configuration in the file.")] = "bs256",
    preset: Annotated[Text, typer.Option(help="quick (an eighth of the width), default or paper.  [default]")] = None,
    rungs: Annotated[Text, typer.Option(help="Rungs to measure, e.g. fp32,+amp.  [all]")] = None,
    repeats: Annotated[int, typer.Option(help="Measurements of each rung, interleaved.")] = 10,
    steps: Annotated[int, typer.Option(help="Iterations of a measurement.")] = 10,
    device: Annotated[str, typer.Option()] = "auto",
    data: Annotated[Text, typer.Option()] = None,
    dataroot: Annotated[Text, typer.Option(help="Folder with CIFAR-100.  [data_path]")] = None,
    out: Annotated[Optional[Path], typer.Option(help="Output directory.  [dnnsuite-runs/ladder-TIME]")] = None,  # noqa: UP045
    resume: Annotated[bool, typer.Option("--resume")] = False,
    plugin: Annotated[Texts, typer.Option()] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> int:
    """Measure the gain of amp, nhwc, extra and compile.

    Interleaves the rungs fp32, +amp, +nhwc, +extra and +compile, and prints images per second, the gain of each rung,
    and the time of each phase. Rounds are saved as they end; --resume adds those that are missing.
    """
    from .. import training
    from ..training.settings import is_job, overrides

    import_plugins(plugin or [], [os.getcwd()])
    file, keys = split(arguments or [])
    job = file if file is not None and is_job(file) else None
    settings = None if job else settings_of(with_data(arguments, data), config, preset)

    from ..training.ladder import RUNGS, climb, of_configuration, of_job, table  # imports torch

    if settings is None:
        made_by = of_job(str(job), preset or "default", overrides(keys), data or "auto", dataroot)
    else:
        made_by = of_configuration(settings, training.find_data(settings, dataroot))
    names = [each.strip() for each in rungs.split(",")] if rungs else list(RUNGS)
    asked = {"rungs": names, "steps": steps, "device": device, "keys": keys, "data": data, "dataroot": dataroot,
             "settings": settings.to_dict() if settings else [job, preset]}  # fmt: skip

    def climbed(before: Blocks, keep: Callable[[Blocks], None]) -> list[Rung]:
        return climb(
            made_by, rungs=names, device=device, rounds=repeats, steps=steps, before=before, keep=keep,
            tell=(lambda line: None) if quiet else say,
        )  # fmt: skip

    found = _kept(out, resume, job, asked, climbed)
    print(json.dumps([asdict(rung) for rung in found]) if as_json else table(found, "samples/s" if job else "img/s"))
    return 0 if any(rung.status == "ok" for rung in found) else 1


def _kept(
    out: Path | None,
    resume: bool,
    job: str | None,
    asked: Mapping[str, Any],
    climbed: Callable[[Blocks, Callable[[Blocks], None]], list[Rung]],
) -> list[Rung]:
    """Climb in a directory that keeps each round, after those that it has."""
    from .. import jobs
    from .._runs.folder import default_out, opened
    from .._runs.identity import identity_of
    from .._runs.interrupts import Interrupted
    from ..training.ladder import save_ladder

    with opened(out or default_out("ladder", LADDER_FILE, resume), LADDER_FILE, resume) as record:
        code = {"code": jobs.get(job)} if job else {}
        record.identify(identity_of(code, {name: str(value) for name, value in asked.items()}))
        before = record.state.get("blocks", {})
        if record.state.get("status") != "done":  # nobody has judged yet whether something disturbed the last round
            before = {name: blocks[:-1] for name, blocks in before.items()}

        def note(**values: Any) -> None:
            record.state.update(values)
            record.save()

        note(status="running")
        try:
            found = climbed(before, lambda blocks: note(blocks=blocks))
        except Interrupted:
            say(f"rounds so far: {record.root}; to continue: dnnsuite ladder ... --resume --out {record.root}")
            raise
        save_ladder(record.root, found)
        note(status="done")
    return found
