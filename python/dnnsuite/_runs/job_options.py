# SPDX-License-Identifier: MIT
"""A job's own options as they are written on a command line: `--option nhid=512`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import InvalidArgument, did_you_mean
from .words import truth


def parse_options(texts: Iterable[str], defaults: Mapping[str, Any] | None, job: str) -> dict[str, Any]:
    """Parse options into values by name, each of its default's type.

    Args:
        texts: `name=value`.
        defaults: the job's options; None where they are not known, and the job itself has to refuse what it has not.
        job: its name, for messages.

    Raises:
        InvalidArgument: no `=`, an option that the job does not have (with the nearest), or a value of another kind.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise InvalidArgument(f"--option {text}: expected NAME=VALUE, e.g. --option dropout=0.2")
        if defaults is not None and name not in defaults:
            meant, has = did_you_mean(name, defaults), ", ".join(defaults) or "none"
            raise InvalidArgument(f"--option {text}: job {job} has no option {name!r}{meant}; it has {has}")
        found[name] = _literal(value) if defaults is None else _like(defaults[name], value.strip(), text)
    return found


def _like(default: Any, value: str, text: str) -> Any:
    """`value` as the kind of `default`."""
    try:
        if isinstance(default, bool):
            found = truth(value)
            if found is None:
                raise ValueError(value)
            return found
        if isinstance(default, (int, float)):
            return type(default)(value)
    except ValueError:
        kind = {bool: "yes or no", int: "a whole number", float: "a number"}[type(default)]
        raise InvalidArgument(f"--option {text}: expected {kind}, such as {default}") from None
    return value if isinstance(default, str) else _literal(value)


def _literal(value: str) -> Any:
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value
