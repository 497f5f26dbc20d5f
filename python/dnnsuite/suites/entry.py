# SPDX-License-Identifier: MIT
"""Entries of a suite, every setting resolved, and the flags of the original suite's scripts as the settings of a job,
and back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import InvalidArgument

if TYPE_CHECKING:
    from ..jobs import JobConfig

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


_LATER = {"variant", "changed", "preset", "weight"}  # fields that suites recorded by an earlier version do not have


@dataclass(frozen=True)
class SuiteEntry:
    """One job of a suite with its settings.

    Attributes:
        index: its place in the suite, from 1.
        key: name of its runs: the job's, with a number where the suite has it several times.
        name: name in results.
        command: the original suite's script, for the summary.
        scope: `student` (a copy in each share) or `all`.
        repeat, number: observations, and batches of each.
        distributed: True if it trains in a process per device when it has the whole machine.
        ignored: flags of a jobs file that have no effect here, kept in the record.
        missing: reason why it cannot run here; empty when it can.
        variant: settings in which it differs from others of the same name, for example `batch_size=16`;
            empty if there is only one.
        changed: settings that are not the job's own, by name.
        preset: preset that its settings are of, for its target; empty for the job's own settings.
        weight: weight of the job in the one number of a comparison or a score.
        unit: unit that its rate counts; `seed_unit` is {name, items}: the original's unit, and how many of `unit`
            are one of that.
    """

    index: int
    key: str
    job: str
    name: str
    command: str
    scope: str
    repeat: int = 0
    number: int = 0
    batch_size: int = 1
    precision: str = "fp32"
    device: str = "cpu"
    data: str = "auto"
    dataroot: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    ignored: dict[str, Any] = field(default_factory=dict)
    missing: str = ""
    unit: str = "items"
    seed_unit: dict[str, Any] = field(default_factory=lambda: {"name": "items", "items": 1})
    distributed: bool = False
    variant: str = ""
    changed: dict[str, Any] = field(default_factory=dict)
    preset: str = ""
    weight: float = 1.0

    def settings(self) -> dict[str, Any]:
        """Settings in which two entries of one job may differ."""
        main = {name: getattr(self, name) for name in ("repeat", "number", "batch_size")}
        where = {name: getattr(self, name) for name in ("precision", "scope", "device", "dataroot", "job")}
        return {**main, **self.options, **where}

    def config(self, seed: int, threads: int | None) -> JobConfig:
        """Return the configuration of one of its workers."""
        from ..jobs import JobConfig

        return JobConfig(
            device=self.device,
            precision=self.precision,
            batch_size=self.batch_size,
            seed=seed,
            data_seed=seed,
            data=self.data,
            dataroot=self.dataroot,
            threads=threads,
            options=dict(self.options),
            steps=self.repeat * self.number,
        )

    def flags(self) -> dict[str, Any]:
        """Flags of the original's scripts, without the one for the GPU, which :meth:`command_line` adds.

        A precision that is neither the script's own nor its `--half` has a flag of this suite.
        """
        data = {} if self.dataroot is None else {"--dataroot": self.dataroot}
        main = {"repeat": self.repeat, "number": self.number, "batch_size": self.batch_size}
        precision: dict[str, Any] = {}
        if "precision" in self.changed:
            precision = {"--half": ""} if self.precision == "fp16" else {"--precision": self.precision}
        return {**flags_of({**main, **self.options}), **precision, **data, **self.ignored}

    def command_line(self) -> str:
        """Return the command that the original suite would have run."""
        device = {("--cuda" if self.device.startswith("cuda") else "--no-cuda"): ""}
        words = [f"{flag} {value}".strip() for flag, value in {**self.flags(), **device}.items()]
        return " ".join([self.command, *words])

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as plain JSON values."""
        return {**asdict(self), "arguments": self.flags()}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> SuiteEntry:
        """Read a result of :meth:`to_dict`.

        Raises:
            InvalidArgument: it was written by another version.
        """
        names = {each.name for each in fields(cls)}
        odd = (names | {"arguments"}) ^ set(value)
        if odd - _LATER or odd & set(value):
            named = ", ".join(sorted(odd))
            raise InvalidArgument(f"the recorded suite is of another version (its jobs differ in: {named})")
        return cls(**{name: value[name] for name in names & set(value)})
