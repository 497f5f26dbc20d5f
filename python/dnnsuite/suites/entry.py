# SPDX-License-Identifier: MIT
"""Entries of a suite, every setting resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgument
from ._flags import flags_of

if TYPE_CHECKING:
    from ..jobs import JobConfig

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
