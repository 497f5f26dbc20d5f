# SPDX-License-Identifier: MIT
"""Flags of the original suite's scripts as the settings of a job, and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

_SHORT = {"-b": "--batch-size", "-j": "--workers", "-s": "--seed", "-l": "--learning-rate", "-f": "--factors"}
_LARGEST = 2**31 - 1  # what a tensor's size, or a count of steps, may be asked to be
_HALF = ("--half", "--fp16")
_DATA = ("--data", "--dataroot", "--dataset-dir")
# They decide nothing that is measured here: where results go, which data set a script looks for, what it leaves out.
_WITHOUT_EFFECT = {
    "--report", "--seed", "--devices", "--jr_id", "--vcd", "--cpu-cores", "--dataset", "--epochs", "--algo",
    "--workers", "--threshold", "--target-bleu", "--no-save", "--no-checks", "--processes", "--log-interval",
    "--testBatchSize", "--backend", "--ngpu", "--env-name", "--use-gae", "--use-linear-lr-decay",
}  # fmt: skip


@dataclass
class JobFlags:
    """Meaning of flags for a job: its options by name, and settings that every job has."""

    options: dict[str, Any] = field(default_factory=dict)  # batch_size, repeat and number among them
    half: bool = False
    precision: str | None = None
    no_cuda: bool = False
    dataroot: str | None = None
    ignored: dict[str, Any] = field(default_factory=dict)  # flags without effect


def settings_of(
    arguments: Mapping[str, Any], defaults: Mapping[str, Any], fail: Callable[[str, str], NoReturn]
) -> JobFlags:
    """Translate flags (values expanded already) for a job with these defaults.

    `fail` is called with a flag and what is wrong with it.
    """
    found = JobFlags()
    names = {_bare(name): name for name in defaults}
    for given, value in arguments.items():
        flag = _SHORT.get(given, given)
        name = names.get(_bare(flag))
        if not flag.startswith("-"):
            found.dataroot = flag  # the original's positional argument
        elif flag in _HALF:
            found.half = True
        elif flag == "--precision":
            found.precision = str(value)
        elif flag in ("--cuda", "--no-cuda"):
            found.no_cuda = flag == "--no-cuda"
        elif name is not None:
            found.options[name] = _converted(given, value, defaults[name], fail)
        elif flag in _DATA:
            found.dataroot = str(value)
        elif flag in _WITHOUT_EFFECT:
            found.ignored[flag] = value
        else:
            has = ", ".join(f"--{name.replace('_', '-')}" for name in defaults)
            fail(given, f"is not a flag of this job; it has {has}")
    return found


def _bare(name: str) -> str:
    """`--imageSize`, `image_size` and `--image-size` are the same."""
    return name.lstrip("-").replace("-", "").replace("_", "").lower()


def _converted(flag: str, value: Any, default: Any, fail: Callable[[str, str], NoReturn]) -> Any:
    """`value` as the type that the default has."""
    if isinstance(default, bool):
        if value in ("", True, "true", "True"):
            return True
        if value in (False, "false", "False"):
            return False
        fail(flag, f"stands alone, or is true or false; got {value!r}")
    kind = type(default)
    if kind not in (int, float, str):
        return value
    try:
        number = kind(value)
    except (TypeError, ValueError, OverflowError):
        fail(flag, f"must be {'a whole number' if kind is int else 'a number'}, got {value!r}")
    if kind is float and not math.isfinite(number):
        fail(flag, f"must be a finite number, got {value!r}")
    if kind is int and isinstance(value, float) and value != number:
        fail(flag, f"must be a whole number, got {value!r}")
    if kind is int and abs(number) > _LARGEST:
        fail(flag, f"must be a whole number up to {_LARGEST:,}, got {value!r}")
    return number


def flags_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as the original's flags; a bare flag has the value "", and one that is off or empty is not there."""
    return {
        f"--{name.replace('_', '-')}": "" if value is True else value
        for name, value in options.items()
        if value is not False and value is not None and value != ""
    }
