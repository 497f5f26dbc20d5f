# SPDX-License-Identifier: MIT
"""Interface between `dnnsuite plot` and a kind of figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Request:
    """A figure to draw from finished runs, as `dnnsuite plot` was asked for it.

    Attributes:
        save: prefix of the files to write; None leaves their name and folder to the kind of figure.
        metric: name of the quantity, for kinds that have several; None draws all.
        allow_unlike: pool runs of unlike machines or jobs, with a note.
    """

    directories: tuple[Path, ...]
    save: Path | None = None
    metric: str | None = None
    allow_unlike: bool = False


@dataclass(frozen=True)
class Drawn:
    """Files that were written for a :class:`Request`, and sentences for its reader."""

    files: Sequence[Path]
    notes: Sequence[str] = field(default=())
