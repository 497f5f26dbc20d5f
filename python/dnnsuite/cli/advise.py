# SPDX-License-Identifier: MIT
"""`dnnsuite advise`: which way of training many models pays here, and with how many at once."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._shown import percent, ratio
from ..errors import InvalidArgument
from ._options import PRESETS, Json, Number, Text, Texts

if TYPE_CHECKING:
    from ..advisor import Advice


def advise(
    jobs: Annotated[list[str], typer.Argument(help="Jobs; `dnnsuite list` names them.", show_default=False)],
    trials: Annotated[int, typer.Option(help="Number of models in the sweep.")] = 16,
    steps: Annotated[Number, typer.Option(help="Training steps of each model.  [preset]")] = None,
    preset: Annotated[Text, typer.Option(help=f"{PRESETS}  [quick]")] = None,
    device: Annotated[Text, typer.Option()] = None,
    precision: Annotated[Text, typer.Option(help="Precision, if the job supports it.  [fp32]")] = None,
    batch_size: Annotated[Number, typer.Option(help="Items per model and step.  [preset]")] = None,
    data: Annotated[Text, typer.Option()] = None,
    threads: Annotated[Number, typer.Option(help="CPU threads.  [all]")] = None,
    plugin: Annotated[Texts, typer.Option()] = None,
    verify: Annotated[
        Number, typer.Option(help="Also measure an array of this many models, and print the error of the prediction.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Predict a job's speed over B, and the cost of a sweep.

    A few steps are measured, alone and as small arrays; the speed of larger ones is predicted with an interval.
    """
    from .._runs.spec import import_plugins
    from ..jobs import get

    import_plugins(plugin or [], [os.getcwd()])
    for job in jobs:
        get(job, swept=True)  # a wrong name is refused before others are measured
    options = {
        "preset": preset, "device": device, "precision": precision, "batch_size": batch_size, "data": data,
    }  # fmt: skip
    if verify is not None:
        return _verify(jobs, verify, threads, options, as_json)
    from ..advisor import advise_job

    found: dict[str, Advice] = {}
    for job in jobs:
        found[job] = advise_job(job, trials=trials, steps=steps, threads=threads, **options)
        if not as_json:
            print(f"{job}\n{found[job]}\n" if len(jobs) > 1 else found[job])
    if as_json:
        print(json.dumps({job: advice.to_dict() for job, advice in found.items()}))
    return 0


def _verify(jobs: list[str], B: int, threads: int | None, options: dict[str, Any], as_json: bool) -> int:
    """Print a row of a Markdown table for each job: prediction, measurement, error."""
    from ..advisor.front import verified
    from ..advisor.measurement import BS

    if (most := max(BS)) >= B:
        raise InvalidArgument(f"--verify {B}: arrays up to {most} are measured anyway; name a larger one")
    rows = []
    if not as_json:
        print(
            "| job | B | predicted, times serial | measured | error | in the interval | advice |\n" + "|---" * 7 + "|"
        )
    for job in jobs:
        advice, step = verified(job, B, threads, **options)
        if advice.fit is None:
            rows.append({"job": job, "B": B, "inconclusive": advice.reason})
            if not as_json:
                print(f"| {job} | {B} | {advice.reason} | | | | |", flush=True)
            continue
        serial_s = advice.measured_s["plain"]
        predicted = advice.fit.interval(B, advice.limits)
        gain, low, high = (B * serial_s / s for s in (predicted.seconds, predicted.high, predicted.low))
        measured = B * serial_s / step.seconds
        error_pct = 100 * (gain / measured - 1)
        row = {"job": job, "B": B, "predicted": gain, "low": low, "high": high, "measured": measured,
               "error_pct": error_pct, "inside": low <= measured <= high,
               "mode": advice.mode, "best_B": advice.B}  # fmt: skip
        rows.append(row)
        if not as_json:
            print(
                f"| {job} | {B} | {ratio(gain, low, high)} | {ratio(measured)} | {percent(error_pct, signed=True)} | "
                f"{'yes' if row['inside'] else 'no'} | {advice.mode}, B={advice.B} |",
                flush=True,
            )
    if as_json:
        print(json.dumps(rows))
    return 0
