# SPDX-License-Identifier: MIT
"""Values as people write them on a command line or in a file: truth, a job's options, a device, an order of runs."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .. import host
from ..errors import InvalidArgument, Unavailable, did_you_mean

# Control characters of C0 and C1 without tab and line feed, and those that turn the direction of writing.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})


def truth(word: str) -> bool | None:
    """Return the truth value of a word such as "yes" or "off"; None if it is none."""
    word = word.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else None


def printable(text: str) -> str:
    """Return `text` safe for a terminal: control characters other than line ends and tabs become U+FFFD.

    Text from records, files and other programs goes through this before a person sees it.
    """
    return _CONTROL.sub("\ufffd", text)


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


DEVICES = ("auto", "cpu", "cuda")


def choose_device(name: str) -> str:
    """Return `cpu` or `cuda`. Imports no torch.

    Raises:
        InvalidArgument: `name` is none of DEVICES.
        Unavailable: `cuda` was asked for and is not available.
    """
    if name not in DEVICES:
        near = did_you_mean("cuda" if name.lower() in ("gpu", "nvidia") else name, DEVICES)
        raise InvalidArgument(f"unknown device {name!r}; accepted: {', '.join(DEVICES)}{near}")
    if name == "cpu":
        return name
    if host.gpus() and host.torch_has_cuda():
        return "cuda"
    if name == "cuda":
        reason = "torch is a CPU build" if not host.torch_has_cuda() else "the NVIDIA driver shows no GPU"
        raise Unavailable(f"--device cuda: {reason}", "", "`dnnsuite doctor` says what is missing; --device cpu works")
    return "cpu"


ORDERS = ("fixed", "shuffled")


def ordered(kind: str, keys: Sequence[str], repeat: int, seed: int) -> list[str]:
    """Order the keys as given (`fixed`), or by the seed and the repeat alone (`shuffled`).

    Raises:
        InvalidArgument: `kind` is none of ORDERS.
    """
    if kind not in ORDERS:
        raise InvalidArgument(f"--order {kind}: accepted: {', '.join(ORDERS)}{did_you_mean(kind, ORDERS)}")
    keys = list(keys)
    if kind == "shuffled":
        random.Random(f"{seed}/{repeat}").shuffle(keys)
    return keys
