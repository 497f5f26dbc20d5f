# SPDX-License-Identifier: MIT
"""Messages about values of options that are not of the option's type: they name the value."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

_KINDS = {"float_parsing": "a number", "int_parsing": "a whole number", "int_from_float": "a whole number"}


class Commands(TyperGroup):
    """Group of commands whose refusals of a value name it, which typer's do not from 0.29 on."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; `help COMMAND` is its help."""
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            errors = getattr(error.__cause__, "errors", None)
            if errors is not None:  # pydantic's; of others the message names the value
                (first, *_) = errors()
                kind = _KINDS.get(first["type"])
                error.message = (
                    f"{first['input']!r} is not {kind}." if kind else f"{error.message}; got {first['input']!r}."
                )
            raise
