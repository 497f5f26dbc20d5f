# SPDX-License-Identifier: MIT
"""`dnnsuite advise`: which way of training many models pays here, and with how many at once."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from typing import Annotated, Any

from .._runs.spec import import_plugins
from .._shown import percent, ratio
from ..errors import InvalidArgument
from ._late import advisor
from ._options import PRESETS, Json, Number, Text, Texts


def advise(
    jobs: Annotated[list[str], "Jobs; `dnnsuite list` names them."],
    trials: Annotated[int, "Number of models in the sweep."] = 16,
    steps: Annotated[Number, "Training steps of each model.  [preset]"] = None,
    preset: Annotated[Text, f"{PRESETS}  [quick]"] = None,
    device: Text = None,
    precision: Annotated[Text, "Precision, if the job supports it.  [fp32]"] = None,
    batch_size: Annotated[Number, "Items per model and step.  [preset]"] = None,
    data: Text = None,
    threads: Annotated[Number, "CPU threads.  [all]"] = None,
    plugin: Texts = None,
    verify: Annotated[
        Number, "Also measure an array of this many models, and print the error of the prediction."
    ] = None,
    as_json: Json = False,
) -> int:
    """Predict a job's speed over B, and the cost of a sweep.

    A few steps are measured, alone and as small arrays; the speed of larger ones is predicted with an interval.
    """
    from ..jobs import get

    import_plugins(plugin or [], [os.getcwd()])
    for job in jobs:
        get(job, swept=True)  # a wrong name is refused before others are measured
    options = {
        "preset": preset, "device": device, "precision": precision, "batch_size": batch_size, "data": data,
    }  # fmt: skip
    if verify is not None:
        return _verify(jobs, verify, threads, options, as_json)
    found: dict[str, advisor.Advice] = {}
    for job in jobs:
        found[job] = advisor.advise_job(job, trials=trials, steps=steps, threads=threads, **options)
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
    row_told: Callable[[str], None] = (lambda _: None) if as_json else functools.partial(print, flush=True)
    row_told("| job | B | predicted, times serial | measured | error | in the interval | advice |\n" + "|---" * 7 + "|")
    for job in jobs:
        advice, step = verified(job, B, threads, **options)
        if advice.fit is None:
            rows.append({"job": job, "B": B, "inconclusive": advice.reason})
            row_told(f"| {job} | {B} | {advice.reason} | | | | |")
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
        row_told(
            f"| {job} | {B} | {ratio(gain, low, high)} | {ratio(measured)} | {percent(error_pct, signed=True)} | "
            f"{'yes' if row['inside'] else 'no'} | {advice.mode}, B={advice.B} |"
        )
    if as_json:
        print(json.dumps(rows))
    return 0
