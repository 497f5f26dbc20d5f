# SPDX-License-Identifier: MIT
"""Files of named training configurations: the one that ships, and those of a user in YAML or JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import jobs
from ..errors import Error, InvalidArgument, Unavailable, did_you_mean, reason, some_of
from .settings import Settings

__all__ = ["SHIPPED", "configuration", "configurations", "is_job", "overrides"]

_FOLDER = Path(__file__).parent / "configurations"
SHIPPED = _FOLDER / "sc20.json"  # the sixteen of SC20's tutorial
_NAMED = ("sc20", "imagenet-resnet50")  # files that ship and may be given by these names


def configurations(path: str | Path = SHIPPED) -> dict[str, Settings]:
    """Return every configuration in a file, by name.

    Args:
        path: a YAML file (with anchors, merges, and tags such as `!!float`) or a JSON file that maps names to keys.
            `sc20` and `imagenet-resnet50` (TBD's settings) are included.

    Raises:
        InvalidArgument: the file is missing or damaged, or a key in it is unknown or has an invalid value.
        Unavailable: the file is YAML, and PyYAML is not installed.

    >>> from dnnsuite import training
    >>> list(training.configurations("sc20"))[:3]
    ['default', 'bs128', 'bs256']
    """
    named = _read(Path(path))
    return {name: Settings.from_mapping(keys, f"{path}: {name}") for name, keys in named.items()}


def configuration(name: str, path: str | Path = SHIPPED) -> Settings:
    """Return one configuration from a file.

    Args:
        name: name of the configuration.
        path: file, see :func:`configurations`.

    Raises:
        InvalidArgument: the file has no configuration of this name, or is damaged.

    >>> from dnnsuite import training
    >>> training.configuration("bs256").batch_size
    256
    """
    named = _read(Path(path))
    if name not in named:
        file = path if path != SHIPPED else SHIPPED.stem
        raise InvalidArgument(
            f"{file} has no configuration {name!r}{did_you_mean(name, named)}; it has {some_of(named, '--list')}"
        )
    return Settings.from_mapping(named[name], f"{path}: {name}")


def is_job(name: str) -> bool:
    """True if a workload has the name, and no file of configurations."""
    return name in jobs.names() and name not in _NAMED


def overrides(texts: Sequence[str]) -> dict[str, str]:
    """Parse `key=value` arguments into a mapping.

    Raises:
        InvalidArgument: one is not of that form, or a key is given twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InvalidArgument(f"{text!r} is not key=value, e.g. lr=0.05")
        if key in found:
            raise InvalidArgument(f"{key} is given twice: {found[key]!r} and {value!r}")
        found[key] = value
    return found


def _read(path: Path) -> Mapping[str, Mapping[str, Any]]:
    if str(path) in _NAMED:
        path = _FOLDER / f"{path}.json"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = did_you_mean(str(path), [*_NAMED, *jobs.names()])
        way = "" if hint or path.suffix else "; name a job (`dnnsuite list`), or a configuration with --config (--list)"
        raise InvalidArgument(f"{path} cannot be read{hint}: {reason(error)}{way}") from error
    try:
        content = json.loads(text) if path.suffix == ".json" else _yaml(text)
    except Error:
        raise
    except Exception as error:  # PyYAML raises errors of its own, and what a tag's constructor raises
        raise InvalidArgument(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(content, Mapping) or not content:
        raise InvalidArgument(f"{path} holds no configurations: it should map names to keys")
    for name, keys in content.items():
        if not isinstance(name, str) or not isinstance(keys, Mapping):
            raise InvalidArgument(f"{path}: {name!r} is not a configuration: it should map keys to values")
    return content


def _yaml(text: str) -> Any:
    try:
        import yaml  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise Unavailable("PyYAML, which reads YAML", "this Python", "pip install dnnsuite[training]") from error
    return yaml.safe_load(text)
