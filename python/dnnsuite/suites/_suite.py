# SPDX-License-Identifier: MIT
"""A suite resolved from a user's options: its jobs, in order, with their settings."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from .._runs.device import choose_device
from .._runs.plugins import import_plugins
from ..errors import Error, InvalidArgument
from ._flags import settings_of
from .definitions import FAST, SUITES, job_of_command
from .entry import SuiteEntry
from .jobs_file import Definition, expand, read_jobs_file

__all__ = ["PRESETS", "Suite", "resolve"]

PRESETS = ("smoke", "fast", "baselines")
_MAIN = ("repeat", "number", "batch_size")


@dataclass(frozen=True)
class Suite:
    """`entries` of a suite that has `size` jobs in all, of which some may have been left out."""

    name: str
    size: int
    entries: tuple[SuiteEntry, ...]
    device: str
    preset: str | None = None
    plugins: tuple[str, ...] = ()
    source: str = ""


def resolve(suite: str, asked: Mapping[str, Any]) -> Suite:
    """The suite of a name (`baselines`, `fast`), a jobs file, or one job, with the options given.

    Args:
        asked: option → value; None or absent means not given: names, exclude (lists), device, precision, preset,
            batch_size, data, dataroot, plugins, variables (what `$NAME` in a jobs file is).

    Raises:
        InvalidArgument: something is refused; the message lists what is accepted, or names file, line and key.
        Unavailable: the device asked for is not here.
    """
    given = {name: value for name, value in asked.items() if value is not None}
    plugins = tuple(given.get("plugins", ()))
    import_plugins(plugins, [os.getcwd()])
    device = choose_device(given.get("device", "auto"))
    preset = given.get("preset")
    if preset not in (None, *PRESETS):
        raise InvalidArgument(f"unknown preset {preset!r}; accepted: {', '.join(PRESETS)}")
    if (batch_size := given.get("batch_size")) is not None and batch_size < 1:
        raise InvalidArgument(f"--batch-size {batch_size}: must be at least 1")
    name, source, definitions = _definitions(suite)
    if name == "fast" and preset is None:
        preset = "fast"
    chosen = _chosen(definitions, given.get("names", ()), given.get("exclude", ()))
    settle = partial(_settled, device=device, preset=preset, given=given, strict=bool(source))
    entries = _with_keys(settle(definition) for definition in chosen)
    return Suite(name, max(d.index for d in definitions), entries, device, preset, plugins, source)


def _definitions(suite: str) -> tuple[str, str, list[Definition]]:
    """(name, file, what it asks for)."""
    from .. import jobs

    path = Path(suite)
    if path.suffix == ".json" or (suite not in SUITES and path.is_file()):
        found = read_jobs_file(path)
        if not found:
            raise InvalidArgument(f"{path}: the list of jobs is empty")
        return path.stem, str(path.resolve()), found
    if suite in SUITES:
        return suite, "", [_bare(i, name) for i, name in enumerate(SUITES[suite], 1)]
    if suite in jobs.names():
        return suite, "", [_bare(1, suite)]
    raise InvalidArgument(
        f"no suite {suite!r}; there is {', '.join(SUITES)}, a jobs file (*.json), or a job: {', '.join(jobs.names())}"
    )


def _bare(index: int, name: str) -> Definition:
    return Definition(index, name, "", {}, "", f"job {name}", {})


def _chosen(
    definitions: Sequence[Definition], names: Iterable[str], excluded: Iterable[str]
) -> list[Definition]:
    wanted, unwanted = set(names), set(excluded)
    known = list(dict.fromkeys(definition.name for definition in definitions))
    for name in (*wanted, *unwanted):
        if name not in known:
            raise InvalidArgument(f"no job {name!r} in this suite; it has {', '.join(known)}")
    chosen = [d for d in definitions if (not wanted or d.name in wanted) and d.name not in unwanted]
    if not chosen:
        raise InvalidArgument("every job is excluded")
    return chosen


def _settled(
    definition: Definition, device: str, preset: str | None, given: Mapping[str, Any], strict: bool
) -> SuiteEntry:
    """One entry; the preset's and the user's wishes are stronger than the file's."""
    job = _job_of(definition)
    try:
        Job = _training(job)
    except (Error, ImportError) as error:
        if strict:
            raise InvalidArgument(f"{definition.where}: {error}") from error
        return SuiteEntry(
            definition.index, definition.name, job, definition.name, job, "student", missing=str(error)
        )
    asked = settings_of(_expanded(definition, given), Job.defaults, partial(_fail, definition))
    values = {**Job.defaults, **asked.options}
    if preset == "fast":
        values |= FAST.get(job, {})
    if preset == "smoke":
        values |= Job.smoke
    if given.get("batch_size") is not None:
        values["batch_size"] = given["batch_size"]
    for name in _MAIN:
        if values[name] < 1:
            raise InvalidArgument(f"{definition.where}: {name} is {values[name]}; must be at least 1")
    precision = given.get("precision") or ("fp16" if asked.half else Job.default_precision)
    if precision not in Job.precisions(device):
        # Not every job has every precision; those that do not keep their own.
        precision = Job.default_precision
    dataroot = asked.dataroot if asked.dataroot and os.path.isdir(asked.dataroot) else given.get("dataroot")
    return SuiteEntry(
        definition.index, definition.name, job, definition.name, definition.command or Job.seed_script,
        definition.scope or Job.scope, values["repeat"], values["number"], values["batch_size"], precision,
        "cpu" if asked.no_cuda else device, given.get("data", "auto"), dataroot,
        {name: value for name, value in values.items() if name not in _MAIN}, asked.ignored,
        unit=Job.unit, seed_unit=Job.seed_unit._asdict(),
        distributed=Job.distributed and (definition.scope or Job.scope) == "all",
    )  # fmt: skip


def _training(job: str) -> Any:
    from .. import jobs

    return jobs.get(job, jobs.Training)


def _job_of(definition: Definition) -> str:
    """By its name, else by the script that it calls."""
    from .. import jobs

    if definition.name in jobs.names() or not definition.command:
        return definition.name
    half = any(flag in definition.arguments for flag in ("--half", "--fp16"))
    job = job_of_command(definition.command, half, definition.scope == "all")
    if job is None:
        raise InvalidArgument(
            f"{definition.where}: neither the name {definition.name!r} nor the command {definition.command!r} "
            f"is known; there is {', '.join(jobs.names())}"
        )
    return job


def _expanded(definition: Definition, given: Mapping[str, Any]) -> dict[str, Any]:
    variables = given.get("variables", {})
    found = {}
    for flag, value in definition.arguments.items():
        fail = partial(_fail, definition, flag)
        # A positional argument is a key: it is expanded as a value is.
        key = flag if flag.startswith("-") else expand(flag, variables, fail)
        found[key] = expand(value, variables, fail) if isinstance(value, str) else value
    return found


def _fail(definition: Definition, flag: str, problem: str) -> NoReturn:
    raise InvalidArgument(f'{definition.at(flag)}: job "{definition.name}", key "{flag}" {problem}')


def _with_keys(entries: Iterable[SuiteEntry]) -> tuple[SuiteEntry, ...]:
    """A key of its own for each entry: the second of a name is name.2."""
    seen: Counter[str] = Counter()
    numbered = []
    for entry in entries:
        seen[entry.name] += 1
        n = seen[entry.name]
        numbered.append(entry if n == 1 else replace(entry, key=f"{entry.name}.{n}"))
    return tuple(numbered)
