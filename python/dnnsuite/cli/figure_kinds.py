# SPDX-License-Identifier: MIT
"""Kinds of figure that `dnnsuite plot` draws: a table from a name to the function that draws it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InvalidArgument, did_you_mean, some_of

if TYPE_CHECKING:
    from ..plots import Drawn, Request


@dataclass(frozen=True)
class Kind:
    """One kind of figure.

    Attributes:
        draw: `module:function` of a function `(plots.Request) -> plots.Drawn`, imported when it is called.
        file: pattern of a file by which a directory of such results is recognised; empty for kinds that are asked for
            by name.
    """

    name: str
    draw: str
    file: str = ""


KINDS = (
    Kind("throughput", "dnnsuite.cli.plot:throughput"),
    Kind("monitor", "dnnsuite.cli.plot:monitor"),
    Kind("convergence", "dnnsuite.workflow.convergence.outputs:draw", "convergence.csv"),
    Kind("partially_fused", "dnnsuite.workflow.partial:draw", "throughputs.csv"),
    Kind("batch_sizes", "dnnsuite.cli.plot:batch_sizes", "throughput.json"),
    Kind("scaling", "dnnsuite.cli.plot:scaling"),
    Kind("sweep", "dnnsuite.cli.plot:sweep", "**/sweep.json"),
    Kind("accuracy", "dnnsuite.training.figures:drawn", "metrics.csv"),
)


def kind_for(name: str | None, directories: Sequence[Path]) -> Kind:
    """Return the kind of that name; without one, that of the first directory's file, else the first of the table.

    Raises:
        InvalidArgument: there is no such kind; the message lists them.
    """
    if name is None:
        return next((kind for kind in KINDS if kind.file and any(directories[0].glob(kind.file))), KINDS[0])
    for kind in KINDS:
        if kind.name == name:
            return kind
    known = [kind.name for kind in KINDS]
    raise InvalidArgument(f"--kind {name}: accepted: {some_of(known)}{did_you_mean(name, known)}")


def draw(kind: Kind, request: Request) -> Drawn:
    """Draw a figure of this kind."""
    module, _, function = kind.draw.partition(":")
    draws: Callable[[Request], Drawn] = getattr(importlib.import_module(module), function)
    return draws(request)
