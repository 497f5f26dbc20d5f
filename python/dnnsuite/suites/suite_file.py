# SPDX-License-Identifier: MIT
"""A suite in a TOML file: jobs by name, each with a preset, options and a weight of its own.

preset = "quick"            # of the jobs that name none

[[job]]
name = "gpt"

[[job]]
name = "dit"
preset = "default"
options = { batch_size = 8, lr = 0.001 }
weight = 3                  # in the one number of a comparison or a score; 1 where none is given
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import InvalidArgument, Unavailable, did_you_mean, reason, some_of
from .jobs_file import Definition

_KEYS, _JOB_KEYS = ("preset", "job"), ("name", "preset", "options", "weight")


def read_suite(path: Path) -> list[Definition]:
    """Read the jobs that a file asks for, in its order.

    Raises:
        InvalidArgument: the file cannot be read, or an entry is refused; the message names file, job and key.
        Unavailable: this Python cannot read TOML.
    """
    try:
        read = importlib.import_module("tomllib").loads
    except ImportError as error:
        raise Unavailable("tomllib, which reads TOML", "this Python", "use Python 3.11 or newer") from error
    try:
        content = read(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # what is no UTF-8 and what is no TOML are ValueErrors
        raise InvalidArgument(f"{path} cannot be read: {reason(error)}") from error
    _known(content, _KEYS, str(path))
    entries = content.get("job")
    if not isinstance(entries, list) or not entries:
        raise InvalidArgument(f"{path} names no job: add a table [[job]] with a name for each")
    found = [_definition(path, i, entry, content.get("preset", "")) for i, entry in enumerate(entries, 1)]
    for i, own in enumerate(found):
        if before := next((each for each in found[:i] if _asked(each) == _asked(own)), None):
            raise InvalidArgument(
                f"{own.where} is {before.where.rpartition(', ')[2]} again: say it once, with a weight"
            )
    return found


def _asked(own: Definition) -> tuple[Any, ...]:
    return own.name, own.preset, sorted(map(repr, own.arguments.items()))


def _definition(path: Path, index: int, entry: Any, preset: Any) -> Definition:
    where = f"{path}, job {index}"
    if isinstance(entry, Mapping):
        _known(entry, _JOB_KEYS, where)
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise InvalidArgument(f"{where}: a name is missing")
    own, options = entry.get("preset", preset), entry.get("options", {})
    if not isinstance(options, Mapping) or not isinstance(own, str):
        raise InvalidArgument(f"{where}: preset is a text, and options are a table of names and values")
    weight = entry.get("weight", 1.0)
    if type(weight) not in (int, float) or not 0 < weight < math.inf:
        raise InvalidArgument(f"{where}: weight is {weight!r}, must be a positive number")
    flags = {f"--{name.replace('_', '-')}": value for name, value in options.items()}
    return Definition(index, entry["name"], "", flags, "", where, {}, own, float(weight))


def _known(content: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
    for key in content:
        if key not in keys:
            raise InvalidArgument(f"{where}: unknown key {key!r}{did_you_mean(key, keys)}; it has {some_of(keys)}")
