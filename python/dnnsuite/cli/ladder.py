# SPDX-License-Identifier: MIT
"""`dnnsuite ladder`: what each optimisation of a training run brings on this device."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import jobs, training
from .._runs.folder import default_out, opened
from .._runs.identity import identity_of
from .._runs.interrupts import Interrupted
from .._runs.spec import import_plugins
from ..training.settings import is_job, overrides
from ._late import ladders
from ._options import File, Json, Text, Texts
from ._status import say
from .train import settings_of, split, with_data

LADDER_FILE = "ladder.json"


def ladder(
    arguments: Annotated[
        Texts,
        typer.Argument(
            metavar="[CONFIG.yaml | JOB] [KEY=VALUE]...",
            help="A file of configurations (default: those of SC20), or a job, and keys to change.",
        ),
    ] = None,
    config: Annotated[str, "Configuration in the file."] = "bs256",
    preset: Annotated[Text, "quick (an eighth of the width), default or paper.  [default]"] = None,
    rungs: Annotated[Text, "Rungs to measure, e.g. fp32,+amp.  [all]"] = None,
    repeats: Annotated[int, "Measurements of each rung, interleaved."] = 10,
    steps: Annotated[int, "Iterations of a measurement."] = 10,
    device: str = "auto",
    data: Text = None,
    dataroot: Annotated[Text, "Folder with CIFAR-100.  [data_path]"] = None,
    out: Annotated[File, "Output directory.  [dnnsuite-runs/ladder-TIME]"] = None,
    resume: bool = False,
    plugin: Texts = None,
    quiet: bool = False,
    as_json: Json = False,
) -> int:
    """Measure the gain of amp, nhwc, extra and compile.

    Interleaves the rungs fp32, +amp, +nhwc, +extra and +compile, and prints images per second, the gain of each rung,
    and the time of each phase. Rounds are saved as they end; --resume adds those that are missing.
    """
    import_plugins(plugin or [], [os.getcwd()])
    file, keys = split(arguments or [])
    job = file if file is not None and is_job(file) else None
    settings = None if job else settings_of(with_data(arguments, data), config, preset)

    if settings is None:
        made_by = ladders.of_job(str(job), preset or "default", overrides(keys), data or "auto", dataroot)
    else:
        made_by = ladders.of_configuration(settings, training.find_data(settings, dataroot))
    names = [each.strip() for each in rungs.split(",")] if rungs else list(ladders.RUNGS)
    asked = {"rungs": names, "steps": steps, "device": device, "keys": keys, "data": data, "dataroot": dataroot,
             "settings": settings.to_dict() if settings else [job, preset]}  # fmt: skip

    def climbed(before: ladders.Blocks, keep: Callable[[ladders.Blocks], None]) -> list[ladders.Rung]:
        return ladders.climb(
            made_by, rungs=names, device=device, rounds=repeats, steps=steps, before=before, keep=keep,
            tell=(lambda line: None) if quiet else say,
        )  # fmt: skip

    found = _kept(out, resume, job, asked, climbed)
    print(
        json.dumps([asdict(rung) for rung in found])
        if as_json
        else ladders.table(found, "samples/s" if job else "img/s")
    )
    return 0 if any(rung.status == "ok" for rung in found) else 1


def _kept(
    out: Path | None,
    resume: bool,
    job: str | None,
    asked: Mapping[str, Any],
    climbed: Callable[[ladders.Blocks, Callable[[ladders.Blocks], None]], list[ladders.Rung]],
) -> list[ladders.Rung]:
    """Climb in a directory that keeps each round, after those that it has."""
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
        ladders.save_ladder(record.root, found)
        note(status="done")
    return found
