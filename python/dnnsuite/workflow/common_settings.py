# SPDX-License-Identifier: MIT
"""Settings that every kind of workflow has: job, device, length, data, resources."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from .. import host
from .._runs.identity import Identity, identity_of
from .._runs.spec import import_plugins
from .._runs.words import choose_device, parse_options
from ..errors import InvalidArgument, did_you_mean, some_of

PRESETS = ("quick", "default", "paper")
SettingsT = TypeVar("SettingsT", bound="CommonSettings")


@dataclass(frozen=True)
class CommonSettings:
    """Settings of a job's training: length, data, device."""

    job: str
    plugins: list[str]
    preset: str
    device: str
    epochs: int
    iters_per_epoch: int
    batch_size: int
    seed: int
    data: str
    dataroot: str | None
    threads: int
    timeout_s: float
    options: dict[str, Any]  # the job's own

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for the record."""
        return asdict(self)

    @classmethod
    def from_dict(cls: type[SettingsT], values: Mapping[str, Any]) -> SettingsT:
        """Read a record's plain values. Raises InvalidArgument for those of another version."""
        names = {field.name for field in fields(cls)}
        if set(values) != names:
            odd = ", ".join(sorted(names ^ set(values)))
            raise InvalidArgument(f"the recorded settings are of another version (they differ in: {odd})")
        return cls(**values)

    def identity(self) -> Identity:
        """Return the identity of a workflow: its settings, and the code of its job with all that it reaches."""
        from .. import jobs

        plain = {_AS_GIVEN.get(name, name): text_of(value) for name, value in self.to_dict().items()}
        return identity_of({"code": jobs.get(self.job, swept=True)}, plain)


def text_of(value: Any) -> str:
    """Return the value of a setting as it is given in a command."""
    if isinstance(value, dict):
        return ",".join(f"{name}={each}" for name, each in value.items())
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def resolve_common(
    job: str,
    given: Mapping[str, Any],
    defaults: Mapping[str, Any],
    short: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return (the job's class, its preset, the fields of `CommonSettings`).

    Args:
        job: a registered job's name.
        given: the options a user gave.
        defaults: values for what the job's preset leaves open.
        short: options of single jobs with the preset `quick`.

    Raises:
        InvalidArgument: a value is refused; the message says what is accepted.
        Unavailable: the device asked for is not here.
    """
    plugins = list(given.get("plugins", []))
    import_plugins(plugins, [os.getcwd()])
    kind = _fused_job(job)
    device = choose_device(given.get("device", "auto"))
    name = one_of("preset", given.get("preset", "default"), PRESETS)
    preset = {**defaults, **kind.preset(name, device)}
    own = short.get(kind.name, {}) if short and name == "quick" else {}
    return kind, preset, {
        "job": kind.name, "plugins": plugins, "preset": name, "device": device,
        **{name: at_least(name, given.get(name, preset[name])) for name in ("epochs", "iters_per_epoch", "batch_size")},
        "seed": given.get("seed", 1), "data": given.get("data", "auto"),
        "dataroot": dataroot_of(given.get("dataroot")),
        "threads": at_least("threads", given.get("threads", host.num_threads())),
        "timeout_s": positive("timeout_s", given.get("timeout_s", preset["timeout_s"])),
        "options": {**preset.get("options", {}), **own, **_options(kind, given.get("options", []))},
    }  # fmt: skip


def _fused_job(name: str) -> Any:
    """Return the class of a job that trains as an array. Raises InvalidArgument with the nearest name of a workflow."""
    from .. import jobs

    try:
        return jobs.get(name, swept=True)
    except InvalidArgument:
        if name in jobs.names():
            raise
        known = jobs.names(swept=True)
        workflows = [*known, "convergence", *(f"{job}_partially_fused" for job in known)]
        raise InvalidArgument(
            f"no workflow {name!r}{did_you_mean(name, workflows)}; available: convergence, resnet_partially_fused, or "
            f"a job with a fused form: {some_of(known, '`dnnsuite list`')}"
        ) from None


def _options(kind: Any, given: Any) -> dict[str, Any]:
    """Return the job's own options, from a mapping or as the command line gives them."""
    if isinstance(given, Mapping):
        return dict(given)
    return parse_options(given, kind.option_defaults(), kind.name)


def dataroot_of(path: str | None) -> str | None:
    """Return the absolute path of a folder of data. Raises InvalidArgument if there is none."""
    if path is not None and not os.path.isdir(path):
        raise InvalidArgument(f"--dataroot {path}: no such directory")
    return None if path is None else os.path.abspath(path)


def at_least(name: str, value: Any) -> Any:
    """Return `value`. Raises InvalidArgument, naming its flag, if it is below 1."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(f"{flag(name)} {value!r}: must be a whole number, at least 1")
    if value < 1:
        raise InvalidArgument(f"{flag(name)} {value}: must be at least 1")
    return value


def positive(name: str, value: Any) -> float:
    """Return `value` as a float. Raises InvalidArgument, naming its flag, if it is no number above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidArgument(f"{flag(name)} {value!r}: must be a number above 0")
    if not (found := float(value)) > 0:
        raise InvalidArgument(f"{flag(name)} {found}: must be positive")
    return found


def one_of(what: str, value: str, accepted: Sequence[str]) -> str:
    """Return `value`. Raises InvalidArgument, listing the accepted values, if it is none of them."""
    if value not in accepted:
        raise InvalidArgument(
            f"unknown {what} {value!r}; accepted: {some_of(accepted)}{did_you_mean(value, accepted)}"
            f"{'; amp needs a GPU' if value == 'amp' else ''}"
        )
    return value


_FLAGS = {
    "options": "--option", "max_B": "--max-B", "max_num_Bs": "--max-num-Bs", "timeout_s": "--timeout",
    "budget_s": "--budget", "plugins": "--plugin", "units": "--unfused",
}  # fmt: skip


#: Options by the names that their flags have, for calls from Python.
_AS_GIVEN = {name: text.removeprefix("--").replace("-", "_") for name, text in _FLAGS.items()}
_BY_FLAG = {given: name for name, given in _AS_GIVEN.items()}
_OF_SEVERAL = frozenset({"devices", "modes", "precisions", "plan", "plugins", "units", "lrs", "options"})


def options_by_name(given: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Options of a call from Python, by the names of their fields; one value of several is a list of one.

    Raises:
        InvalidArgument: an option is not known; the message has the nearest one.
    """
    found = {}
    for name, value in given.items():
        field = _BY_FLAG.get(name, name)
        if field not in known:
            names = sorted({*known, *_BY_FLAG})
            raise InvalidArgument(f"a workflow has no option {name!r}{did_you_mean(name, names)}")
        several = field in _OF_SEVERAL and isinstance(value, (str, int, float))
        found[field] = [value] if several else value
    return found


def flag(name: str) -> str:
    """Return the command line's option for the name of a field."""
    return _FLAGS.get(name, "--" + name.replace("_", "-"))
