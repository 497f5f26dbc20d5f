# SPDX-License-Identifier: MIT
"""Types of options that several commands have.

Typer reads annotations when it runs, on Python 3.10 too, where it wants Optional spelled out.
"""

from __future__ import annotations

from typing import Annotated, Optional

import typer

__all__ = ["PRESETS", "AllowChanged", "Json", "Number", "Quiet", "Text", "Texts"]

PRESETS = "quick (minutes on two cores), default, or paper (the sizes of HFTA's published measurements)."

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet")]
Number = Optional[int]  # noqa: UP045
Text = Optional[str]  # noqa: UP045
Texts = Optional[list[str]]  # noqa: UP045
AllowChanged = Annotated[
    Texts,
    typer.Option(
        metavar="NAME", help="With --resume: a setting that may have changed; the records note it. Repeatable."
    ),
]
