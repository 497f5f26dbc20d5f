# SPDX-License-Identifier: MIT
"""Words that the shell completes after TAB: names of jobs, suites and data sets, and the values an option accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .. import jobs
from ._late import catalogue, suites

Words = Callable[[], Iterable[str]]


def _workflows() -> Iterable[str]:
    return [*jobs.names(swept=True), "convergence", "resnet_partially_fused"]


_MODES = "serial concurrent mps mig hfta"
# Words by command and parameter, or by parameter alone where they are the same for all commands.
_WORDS: dict[str, Words | str] = {
    "run.suite": lambda: [*suites.SUITES, *jobs.names()],
    "run.name": jobs.names,
    "run.exclude": jobs.names,
    "run.order": "fixed shuffled",
    "run.pin": "auto cgroup affinity none",
    "workflow.name": _workflows,
    "workflow.modes": _MODES,
    "precisions": "fp32 amp bf16 fp16 fp64",
    "tune.job": _workflows,
    "tune.modes": _MODES,
    "algorithm": "random hyperband halving asha pbt",
    "tune.goal": "min max",
    "where.name": lambda: catalogue.DATA_SETS,
    "prepare_set.name": lambda: catalogue.DATA_SETS,
    "gpu_model": "V100 MI50 RTX",
    "style": "full seed score",
    "method": "auto paired unpaired",
    "step_on": "auto optimizer backward gradient forward",
    "metrics": "timeline cores fp32 memory power all",
    "rungs": "fp32 +amp +nhwc +extra +compile",
    "locality": "auto strict prefer",
    "smt": "on off",
    "backend": "auto cgroup affinity none",
    "require": "cgroup affinity",
    "cluster": "slurm local debug",
    "preset": "quick default paper",
    "device": "auto cpu cuda",
    "run.precision": "fp32 bf16 fp16",
    "precision": "fp32 amp bf16 fp16 fp64",
    "data": "auto real synthetic",
    "monitor": "auto nvml dcgm none",
    "target": jobs.names,
    "jobs": jobs.names,
    "job": jobs.names,
}


def words_of(command: str, name: str) -> list[str]:
    """Return the words that an option of a command takes, where they are in the table as such."""
    words = _WORDS.get(f"{command}.{name}") or _WORDS.get(name)
    return words.split() if isinstance(words, str) else []


def completing(command: str, name: str) -> Callable[[str], list[str]] | None:
    """Return the function that completes a value of a command's parameter; None where nothing is known of it."""
    words = _WORDS.get(f"{command}.{name}") or _WORDS.get(name)
    if words is None:
        return None
    return lambda incomplete: beginning(incomplete, words() if callable(words) else words.split())


def beginning(incomplete: str, words: Iterable[str]) -> list[str]:
    """List the words that begin with the text after its last comma, each behind the text up to there."""
    before, comma, last = incomplete.rpartition(",")
    return [before + comma + word for word in words if word.startswith(last)]
