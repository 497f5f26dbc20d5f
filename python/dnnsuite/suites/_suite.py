# SPDX-License-Identifier: MIT
"""A suite resolved from a user's options: its jobs, in order, with their settings."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from .._runs.identity import Identity, identity_of
from .._runs.spec import import_plugins
from .._runs.words import choose_device
from ..errors import Error, InvalidArgument, did_you_mean, some_of
from .entry import JobFlags, SuiteEntry, settings_of
from .jobs_file import Definition, expand, read_jobs_file, read_suite
from .mila import FAST, SUITES, job_of_command, script_of, unit_of

SOURCES = ("auto", "real", "synthetic")
PRESETS = ("smoke", "fast", "baselines", "quick", "default", "paper")
PRECISIONS = ("fp32", "bf16", "fp16")
_MAIN = ("repeat", "number", "batch_size")
_AS_OFTEN = ("repeat", "number", "workers")
_MOST = {"repeat": 1_000_000, "number": 10_000_000, "batch_size": 2**31 - 1}


@dataclass(frozen=True)
class Suite:
    """A suite whose jobs have been looked up.

    Attributes:
        name: name of the suite.
        size: number of all its jobs; `entries` are those that run.
        entries: the jobs to run, with their options.
        device: cpu or cuda.
        preset: preset of the jobs that do not set one.
        plugins: modules that register jobs.
        source: file that describes the suite; empty for suites of the package.
    """

    name: str
    size: int
    entries: tuple[SuiteEntry, ...]
    device: str
    preset: str | None = None
    plugins: tuple[str, ...] = ()
    source: str = ""


def resolve(suite: str, asked: Mapping[str, Any]) -> Suite:
    """Resolve a suite by its name (`baselines`, `fast`, `2026`), a file, or jobs (`a,b`), with the options given.

    Args:
        asked: option → value; None or absent means not given: names, exclude (lists), device, precision, preset,
            batch_size, data, dataroot, plugins, variables (what `$NAME` in a jobs file is).

    Raises:
        InvalidArgument: an option or entry is refused; the message lists the accepted values, or names file, line and
            key.
        Unavailable: the device asked for is not here.
    """
    given = {name: value for name, value in asked.items() if value is not None}
    plugins = tuple(given.get("plugins", ()))
    import_plugins(plugins, [os.getcwd()])
    device = choose_device(given.get("device", "auto"))
    preset = given.get("preset")
    _check_preset(preset, "")
    if (size := given.get("batch_size")) is not None and not 1 <= size <= _MOST["batch_size"]:
        raise InvalidArgument(f"--batch-size {size}: must be 1 to {_MOST['batch_size']:,}")
    if (data := given.get("data")) is not None and data not in SOURCES:
        raise InvalidArgument(f"--data {data}: accepted: {', '.join(SOURCES)}{did_you_mean(data, SOURCES)}")
    name, source, definitions = _definitions(suite)
    if name == "fast" and preset is None:
        preset = "fast"
    chosen = _chosen(definitions, given.get("names", ()), given.get("exclude", ()))
    settle = partial(_settled, device=device, preset=preset, given=given, strict=bool(source))
    entries = _with_keys(settle(definition) for definition in chosen)
    return Suite(name, max(d.index for d in definitions), entries, device, preset, plugins, source)


def _check_preset(preset: str | None, where: str) -> None:
    if preset not in (None, "", *PRESETS):
        near = did_you_mean(preset, PRESETS)
        raise InvalidArgument(f"{where}unknown preset {preset!r}; accepted: quick, default, paper{near}")


def code_of(suite: Suite) -> dict[str, dict[str, str]]:
    """Code of the suite's jobs, with the functions and values that it reaches: texts by place, by the job's name."""
    from .. import jobs

    kinds = {entry.job: jobs.get(entry.job) for entry in suite.entries if not entry.missing}
    found = identity_of(kinds)
    return {name: {"": found.texts[name], **found.parts[name]} for name in kinds}


def identity_of_entries(entries: Iterable[SuiteEntry], code: Mapping[str, Mapping[str, str]]) -> Identity:
    """Identity of a suite, a part for each job: its settings, and its code from :func:`code_of`."""
    found = Identity()
    for entry in entries:
        own = {name: v for name, v in entry.to_dict().items() if name not in ("index", "missing", "arguments")}
        settings = {name: repr(own[name]) for name in own if name != "options"}
        settings |= {name: repr(value) for name, value in entry.options.items()}
        found.parts[entry.key] = {**settings, **code.get(entry.job, {})}
        found.texts[entry.key] = json.dumps(found.parts[entry.key], sort_keys=True)
    return found


def _definitions(suite: str) -> tuple[str, str, list[Definition]]:
    """Return (name, file, what it asks for)."""
    from .. import jobs

    path = Path(suite)
    if path.suffix == ".toml":
        return path.stem, str(path.resolve()), read_suite(path)
    if path.suffix == ".json" or (suite not in SUITES and path.is_file()):
        found = read_jobs_file(path)
        if not found:
            raise InvalidArgument(f"{path}: the list of jobs is empty")
        return path.stem, str(path.resolve()), found
    if suite in SUITES:
        return suite, "", [_bare(i, name) for i, name in enumerate(SUITES[suite], 1)]
    several = [name.strip() for name in suite.split(",")]
    if len(set(several)) < len(several):
        raise InvalidArgument(f"{suite} names a job twice: name each once")
    for name in several:
        if name not in jobs.names():
            raise InvalidArgument(
                f"no suite {name!r}{did_you_mean(name, [*SUITES, *jobs.names()])}; available: {', '.join(SUITES)}, a "
                f"jobs file (*.json), a suite file (*.toml), or a job: {some_of(jobs.names(), '`dnnsuite list`')}"
            )
    return suite, "", [_bare(i, name) for i, name in enumerate(several, 1)]


def _bare(index: int, name: str) -> Definition:
    return Definition(index, name, "", {}, "", f"job {name}", {})


def _chosen(definitions: Sequence[Definition], names: Iterable[str], excluded: Iterable[str]) -> list[Definition]:
    wanted, unwanted = set(names), set(excluded)
    known = list(dict.fromkeys(definition.name for definition in definitions))
    for name in (*wanted, *unwanted):
        if name not in known:
            near = did_you_mean(name, known)
            raise InvalidArgument(f"no job {name!r} in this suite{near}; it has {some_of(known, '--show')}")
    chosen = [d for d in definitions if (not wanted or d.name in wanted) and d.name not in unwanted]
    if not chosen:
        raise InvalidArgument("--exclude leaves no job of the suite: exclude fewer")
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
        return SuiteEntry(definition.index, definition.name, job, definition.name, job, "student", missing=str(error))
    own = Job.settings("default")
    asked = settings_of(_expanded(definition, given), own, partial(_fail, definition))
    values = {**own, **asked.options}
    _check_preset(definition.preset, f"{definition.where}: ")
    preset = preset or definition.preset or None
    if preset == "fast":
        values |= FAST.get(job, {})
    elif preset is not None:
        values |= {name: value for name, value in Job.settings(preset).items() if value != own[name]}
    if definition.preset is not None:
        values |= asked.options
    if given.get("batch_size") is not None:
        values["batch_size"] = given["batch_size"]
    for name in _MAIN:
        if not 1 <= values[name] <= _MOST[name]:
            raise InvalidArgument(f"{definition.where}: {name} is {values[name]}; must be 1 to {_MOST[name]:,}")
    precision, refused = _precision(definition, Job, asked, given.get("precision"), device)
    dataroot = asked.dataroot if asked.dataroot and os.path.isdir(asked.dataroot) else given.get("dataroot")
    return SuiteEntry(
        definition.index, definition.name, job, definition.name, definition.command or script_of(job),
        definition.scope or Job.scope, values["repeat"], values["number"], values["batch_size"], precision,
        "cpu" if asked.no_cuda else device, given.get("data", "auto"), dataroot,
        {name: value for name, value in values.items() if name not in _MAIN},
        {**asked.ignored, **({"--no-cuda": ""} if asked.no_cuda else {})}, refused,
        unit=Job.unit, seed_unit=unit_of(job, Job.unit),
        distributed=Job.distributed and (definition.scope or Job.scope) == "all",
        changed=_changed(Job, {**values, "precision": precision}), preset=preset or "", weight=definition.weight,
    )  # fmt: skip


def _precision(
    definition: Definition, Job: Any, asked: JobFlags, everywhere: str | None, device: str
) -> tuple[str, str]:
    """Return (precision of an entry, why it cannot run in it; empty where it can).

    A precision that the user wants of every job, and that this one has not, leaves the job out: measured in another one
    it would be taken for what was asked. One that the jobs file names for this job is an error of the file.
    """
    offered = Job.precisions(device)
    if everywhere is not None:
        if everywhere not in PRECISIONS:
            near = did_you_mean(everywhere, PRECISIONS)
            raise InvalidArgument(
                f"--precision {everywhere}: accepted: {', '.join(PRECISIONS)}, where a job has it{near}"
            )
        if everywhere in offered:
            return everywhere, ""
        return everywhere, f"it has no precision {everywhere} on {device}, only {', '.join(offered)}"
    named = asked.precision or ("fp16" if asked.half else None)
    if named is not None and named not in offered:
        flag = "--precision" if asked.precision else "--half"
        known = f"on {device} it has {', '.join(offered)}"
        _fail(definition, flag, f"asks for {named}, which this job has not; {known}")
    return named or Job.default_precision, ""


def _changed(Job: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that are not the job's own; how often and with how many workers it is measured are no such."""
    own = {**Job.settings("default"), "precision": Job.default_precision}
    return {name: value for name, value in values.items() if name not in _AS_OFTEN and value != own[name]}


def _training(job: str) -> Any:
    from .. import jobs

    return jobs.get(job)


def _job_of(definition: Definition) -> str:
    """Find a job by its name, else by the script that it calls."""
    from .. import jobs

    if definition.name in jobs.names() or not definition.command:
        return definition.name
    half = any(flag in definition.arguments for flag in ("--half", "--fp16"))
    job = job_of_command(definition.command, half, definition.scope == "all")
    if job is None:
        raise InvalidArgument(
            f"{definition.where}: neither the name {definition.name!r} nor the command {definition.command!r} "
            f"is known; available: {some_of(jobs.names(), '`dnnsuite list`')}"
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
    """Return a key of its own for each entry (the second of a name is name.2), and what is different between those of
    a name.

    Raises:
        InvalidArgument: an entry has the name that another one's key would have.
    """
    of_name: dict[str, list[SuiteEntry]] = {}
    for entry in entries:
        of_name.setdefault(entry.name, []).append(entry)
    numbered: list[SuiteEntry] = []
    for name, same in of_name.items():
        for n, (entry, variant) in enumerate(zip(same, _variants(same), strict=True), 1):
            key = name if n == 1 else f"{name}.{n}"
            if n > 1 and key in of_name:
                raise InvalidArgument(f"the name {key!r} is that of the {n}. job called {name!r}; rename it")
            numbered.append(replace(entry, key=key, variant=variant))
    return tuple(sorted(numbered, key=lambda entry: entry.index))


def _variants(entries: Sequence[SuiteEntry]) -> list[str]:
    """Differences between the entries of one name, as `batch_size=16, number=2` for each."""
    settings = [entry.settings() for entry in entries]
    names = [name for name in settings[0] if any(each.get(name) != settings[0][name] for each in settings)]
    said = [", ".join(f"{name}={each.get(name)}" for name in names) for each in settings]
    twice = Counter(said)
    seen: Counter[str] = Counter()
    for i, text in enumerate(said):
        seen[text] += 1
        if twice[text] > 1 and seen[text] > 1:  # asked for twice with the same settings
            said[i] = ", ".join(filter(None, [text, f"#{seen[text]}"]))
    return said
