# SPDX-License-Identifier: MIT
"""Kinds of figure that `dnnsuite plot` draws."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InvalidArgument, did_you_mean, some_of

if TYPE_CHECKING:
    from ..plots import Drawn, Request

#: `module:function` of a function `(plots.Request) -> plots.Drawn`, imported when it is called; and the pattern of a
#: file by which a directory of such results is recognised, empty for kinds that are only drawn by name.
KINDS = {
    "throughput": ("dnnsuite.cli.plot:throughput", ""),
    "monitor": ("dnnsuite.cli.plot:monitor", ""),
    "convergence": ("dnnsuite.workflow.convergence.verdict:draw", "convergence.csv"),
    "partially_fused": ("dnnsuite.workflow.modes:draw_unfused", "throughputs.csv"),
    "batch_sizes": ("dnnsuite.cli.plot:batch_sizes", "throughput.json"),
    "scaling": ("dnnsuite.cli.plot:scaling", ""),
    "sweep": ("dnnsuite.cli.plot:sweep", "**/sweep.json"),
    "accuracy": ("dnnsuite.training.figures:drawn", "metrics.csv"),
}


def kind_for(name: str | None, directories: Sequence[Path]) -> str:
    """Return that name; without one, the kind of the first directory's file, else throughput.

    Raises:
        InvalidArgument: there is no such kind; the message lists them.
    """
    if name is None:
        return next(
            (kind for kind, (_, file) in KINDS.items() if file and any(directories[0].glob(file))), "throughput"
        )
    if name not in KINDS:
        raise InvalidArgument(f"--kind {name}: accepted: {some_of(KINDS)}{did_you_mean(name, KINDS)}")
    return name


def draw(kind: str, request: Request) -> Drawn:
    """Draw a figure of this kind."""
    module, _, function = KINDS[kind][0].partition(":")
    drawn: Drawn = getattr(importlib.import_module(module), function)(request)
    return drawn
