# SPDX-License-Identifier: MIT
"""Settings of a workflow: options of a user with every default resolved and every value checked."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from .. import host
from .._runs.device import choose_device
from .._runs.plugins import import_plugins
from ..errors import InvalidArgument
from ..profiler.monitor import check_monitor
from . import modes
from .job_options import parse_options
from .partial import is_partial, number_of
from .search import FLAGS, SEARCHED, as_flag, resolve_search

__all__ = ["PRESETS", "WorkflowSettings", "resolve"]

PRESETS = ("quick", "default", "paper")

# For what a job's preset leaves open.
_DEFAULTS: dict[str, Any] = {
    "epochs": 2,
    "iters_per_epoch": 10,
    "repeats": 3,
    "batch_size": 32,
    "max_B": None,
    "max_num_Bs": 5,
    "lambd": 4.0,
    "dry_run_iters": 2,
    "equality_steps": 20,
    "timeout_s": 3600.0,
}


@dataclass(frozen=True)
class WorkflowSettings:
    """All that decides what a workflow measures. Two workflows with equal settings can share a directory."""

    job: str
    plugins: list[str]
    preset: str
    device: str
    device_model: str
    modes: list[str]
    precisions: list[str]
    repeats: int
    epochs: int
    iters_per_epoch: int
    batch_size: int
    seed: int
    data: str
    dataroot: str | None
    threads: int
    plan: list[int] | None  # Bs to measure as given; None: found by search
    max_B: int | None  # the largest B as given, taken without search
    limit_B: int | None  # where the search stops, from the preset
    max_num_Bs: int
    lambd: float
    dry_run_iters: int
    equality_steps: int
    timeout_s: float
    monitor: str = "auto"
    options: dict[str, Any] = field(default_factory=dict)  # the job's own
    search: dict[str, dict[str, Any]] = field(default_factory=dict)  # mode → as in `search.FLAGS`

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for the record."""
        return asdict(self)

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> WorkflowSettings:
        """Raises InvalidArgument when the record was written by another version."""
        names = {each.name for each in fields(WorkflowSettings)}
        values = {**_before(values), **values}
        if set(values) != names:
            odd = ", ".join(sorted(names ^ set(values)))
            raise InvalidArgument(f"the recorded settings are of another version (they differ in: {odd})")
        return WorkflowSettings(**values)


def _before(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that a record lacks which was written before there were any, as they were then."""
    same = {name: values[name] for name in ("max_num_Bs", "lambd", "dry_run_iters") if name in values}
    return {"monitor": "auto", "options": {}, "search": resolve_search({}, same, paper=False)}


def resolve(job: str, asked: Mapping[str, Any]) -> WorkflowSettings:
    """Settings for a job, from the options a user gave, the job's preset and the machine.

    Args:
        job: a registered job's name.
        asked: option → value; None or absent means not given. `modes`, `precisions` and `plan` are sequences
            of strings that may hold commas.

    Raises:
        InvalidArgument: a value is refused; the message lists what is accepted.
        Unavailable: the device asked for is not here.
    """
    from .. import jobs

    given = {name: value for name, value in asked.items() if value is not None}
    plugins = list(given.get("plugins", []))
    import_plugins(plugins, [os.getcwd()])
    Job = jobs.get(job, jobs.Job)
    device = choose_device(given.get("device", "auto"))
    preset_name = _one_of("preset", given.get("preset", "default"), PRESETS)
    preset = {**_DEFAULTS, **Job.preset(preset_name, device)}

    def number(name: str, least: float, preset_key: str | None = None) -> Any:
        value = given.get(name, preset[preset_key or name])
        if not value >= least:
            raise InvalidArgument(f"{_flag(name)} {value}: must be at least {least}")
        return value

    plan, max_B = _plan(given.get("plan")), given.get("max_B")
    if plan is None and max_B is None and preset.get("plan"):
        plan = list(preset["plan"])
    if plan and max_B is not None:
        raise InvalidArgument("--plan and --max-B exclude each other: the plan is the Bs themselves")
    if max_B is not None and max_B < 1:
        raise InvalidArgument(f"--max-B {max_B}: must be at least 1")
    if not (lambd := float(given.get("lambd", preset["lambd"]))) > 0:
        raise InvalidArgument(f"--lambd {lambd}: must be positive")
    if not (timeout_s := float(given.get("timeout_s", preset["timeout_s"]))) > 0:
        raise InvalidArgument(f"--timeout {timeout_s}: must be positive")
    threads = given.get("threads", host.num_cpus())
    if threads < 1:
        raise InvalidArgument(f"--threads {threads}: must be at least 1")
    search = resolve_search(given, preset, preset_name == "paper")
    own = parse_options(given.get("options", []), Job.option_defaults(), Job.name)
    return WorkflowSettings(
        job=Job.name, plugins=plugins, preset=preset_name, device=device,
        device_model=_slug(given["device_model"]) if "device_model" in given else _device_model(device),
        modes=_modes(given.get("modes")),
        precisions=_precisions(Job, device, given.get("precisions"), bool(given.get("bf16"))),
        repeats=number("repeats", 1), epochs=number("epochs", 1),
        iters_per_epoch=number("iters_per_epoch", 1), batch_size=number("batch_size", 1),
        seed=given.get("seed", 1),
        data=given.get("data", "auto"), dataroot=_dataroot(given.get("dataroot")), threads=threads,
        plan=plan, max_B=max_B, limit_B=None if plan or max_B else preset["max_B"],
        max_num_Bs=number("max_num_Bs", 1), lambd=lambd,
        dry_run_iters=preset["dry_run_iters"], equality_steps=preset["equality_steps"], timeout_s=timeout_s,
        monitor=check_monitor(given.get("monitor", "auto")),
        options={**preset.get("options", {}), **own}, search=search,
    )  # fmt: skip


def differences(recorded: WorkflowSettings, asked: Mapping[str, Any]) -> list[str]:
    """Options a user gave with `--resume` that are not what the directory was made with, as sentences."""
    given = {name: value for name, value in asked.items() if value is not None}
    normal: dict[str, Callable[[Any], Any]] = {
        "modes": _modes,
        "precisions": lambda value: _split(value),
        "plan": _plan,
        "plugins": list,
        "device": lambda value: recorded.device if value == "auto" else value,
        "device_model": _slug,
        "dataroot": _dataroot,
        "options": lambda value: {
            **recorded.options,
            **parse_options(value, recorded.options or None, recorded.job),
        },
    }
    found = []
    flags = {f"{mode}_{name}": (mode, name) for mode in SEARCHED for name in FLAGS}
    for name, value in given.items():
        if name in flags:
            mode, own = flags[name]
            now, then = value, recorded.search[mode][own]
        else:
            now, then = normal.get(name, _same)(value), _recorded(recorded, name)
        if now != then:
            found.append(f"{_flag(name)} is {_show(now)}, was {_show(then)}")
    return found


def _same(value: Any) -> Any:
    return value


def _recorded(recorded: WorkflowSettings, name: str) -> Any:
    return "bf16" in recorded.precisions if name == "bf16" else getattr(recorded, name)


def _precisions(job: Any, device: str, asked: Sequence[str] | None, bf16: bool) -> list[str]:
    """Those asked for, else the job's default; and bf16 if it is asked for beside them."""
    offered = list(job.precisions(device))
    chosen = _several("precision", asked, offered) if asked else list(job.default_precisions(device))
    if bf16 and "bf16" not in chosen:
        chosen.append(_one_of("precision", "bf16", offered))
    return chosen


def _dataroot(path: str | None) -> str | None:
    if path is not None and not os.path.isdir(path):
        raise InvalidArgument(f"--dataroot {path}: no such directory")
    return None if path is None else os.path.abspath(path)


def _device_model(device: str) -> str:
    return _slug(host.gpus()[0].name) if device == "cuda" else ""


def _slug(name: str) -> str:
    """`NVIDIA H200` → `h200`, for file names."""
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"(?i)nvidia|tesla|geforce", "", name).lower()).strip("-")


def _plan(values: Sequence[str] | None) -> list[int] | None:
    if not values:
        return None
    try:
        plan = sorted({int(value) for value in _split(values)})
    except ValueError:
        raise InvalidArgument(
            f"--plan {','.join(map(str, values))}: wants whole numbers, as 1,2,4,8"
        ) from None
    if not plan or plan[0] < 1:
        raise InvalidArgument(f"--plan {','.join(map(str, values))}: every B must be at least 1")
    return plan


def _several(what: str, values: Sequence[str] | None, accepted: list[str]) -> list[str]:
    """The values in the accepted order, once each; all of them when none were given."""
    if not values:
        return accepted
    chosen = {_one_of(what, value, accepted) for value in _split(values)}
    return [value for value in accepted if value in chosen]


def _modes(values: Sequence[str] | None) -> list[str]:
    """The modes in the order of `modes.MODES`, then partly fused ones by the number of units left unfused."""
    partial = {value for value in _split(values or ()) if is_partial(value)}
    others = [value for value in _split(values or ()) if value not in partial]
    whole = _several("mode", others, list(modes.MODES)) if others else [] if partial else modes.DEFAULT
    return [*whole, *sorted(partial, key=lambda mode: int(number_of(mode) or 0))]


def _split(values: Sequence[str]) -> list[str]:
    return [part.strip() for value in values for part in str(value).split(",") if part.strip()]


def _one_of(what: str, value: str, accepted: Sequence[str]) -> str:
    if value not in accepted:
        raise InvalidArgument(f"unknown {what} {value!r}; accepted: {', '.join(accepted)}")
    return value


def _flag(name: str) -> str:
    for mode in SEARCHED:
        if name.startswith(f"{mode}_"):
            return as_flag(mode, name.removeprefix(f"{mode}_"))
    flags = {
        "options": "--option",
        "max_B": "--max-B",
        "max_num_Bs": "--max-num-Bs",
        "timeout_s": "--timeout",
        "plugins": "--plugin",
    }
    return flags.get(name, "--" + name.replace("_", "-"))


def _show(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}={each}" for name, each in value.items())
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
