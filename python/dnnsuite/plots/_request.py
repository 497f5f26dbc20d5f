# SPDX-License-Identifier: MIT
"""Interface between `dnnsuite plot` and a kind of figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import InvalidArgument, did_you_mean
from ._style import SUFFIXES

_OTHER_PICTURES = (".jpg", ".jpeg", ".eps", ".ps", ".gif", ".bmp", ".tif", ".tiff", ".webp")


@dataclass(frozen=True)
class Request:
    """A figure to draw from finished runs, as `dnnsuite plot` was asked for it.

    Attributes:
        save: name of the figure (`fig.pdf`), or a prefix of the files; None leaves them to the kind of figure.
        metric: name of the quantity, for kinds that have several; None draws all.
        allow_unlike: pool runs of unlike machines or jobs, with a note.
    """

    directories: tuple[Path, ...]
    save: Path | None = None
    metric: str | None = None
    allow_unlike: bool = False

    def files(self, default: Path) -> list[Path]:
        """Paths of the CSV file and of the figure: `save`, else `default`, with their suffixes.

        >>> [path.name for path in Request((), Path("fig.pdf")).files(Path("a"))]
        ['fig.csv', 'fig.pdf']
        """
        return [self.file(default, ".csv"), self.file(default)]

    def file(self, default: Path, suffix: str | None = None, more: str = "") -> Path:
        """Path of one file: of the figure, or with `suffix` of another; `more` comes before the suffix.

        Raises:
            InvalidArgument: `save` ends in the suffix of another kind of picture.
        """
        prefix = self.save or default
        named = self.save is not None and prefix.suffix in SUFFIXES
        hint = "" if named else did_you_mean(prefix.suffix, SUFFIXES)
        if hint or prefix.suffix in _OTHER_PICTURES:
            raise InvalidArgument(f"--save {prefix}: a figure's name ends in one of {', '.join(SUFFIXES)}{hint}")
        stem = prefix.stem if named else prefix.name
        return prefix.with_name(f"{stem}{more}{suffix or (prefix.suffix if named else '.png')}")


@dataclass(frozen=True)
class Drawn:
    """Files that were written for a :class:`Request`, and sentences for its reader."""

    files: Sequence[Path]
    notes: Sequence[str] = field(default=())
