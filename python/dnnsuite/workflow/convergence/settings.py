# SPDX-License-Identifier: MIT
"""Settings of a comparison of convergence: a user's options with every default resolved and every value checked."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from ... import host
from ..._runs.device import choose_device
from ..._runs.plugins import import_plugins
from ...errors import InvalidArgument
from ..job_options import parse_options

__all__ = ["ConvergenceSettings", "resolve"]

# Epochs and iterations per epoch; `paper` is HFTA's protocol: CIFAR-10 in batches of 128.
_LENGTHS = {"quick": (3, 20), "default": (3, 20), "paper": (100, 391)}
_QUICK = {"resnet": {"width": 8}}  # so that it takes less than a minute on two cores
_HFTA_RATES = (0.002, 0.001, 0.0005)
_MODELS = 3


@dataclass(frozen=True)
class ConvergenceSettings:
    """All that decides what is compared."""

    job: str
    plugins: list[str]
    preset: str
    device: str
    precision: str
    lrs: list[float]
    epochs: int
    iters_per_epoch: int
    batch_size: int
    seed: int
    data: str
    dataroot: str | None
    threads: int
    smooth: int
    timeout_s: float
    options: dict[str, Any]

    @property
    def iterations(self) -> int:
        """Iterations of each model."""
        return self.epochs * self.iters_per_epoch

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for the record."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ConvergenceSettings:
        """Raises InvalidArgument when the record was written by another version."""
        names = {field.name for field in fields(cls)}
        if set(values) != names:
            odd = ", ".join(sorted(names ^ set(values)))
            raise InvalidArgument(f"the recorded settings are of another version (they differ in: {odd})")
        return cls(**values)


def resolve(asked: Mapping[str, Any]) -> ConvergenceSettings:
    """Settings from the options a user gave, the job's preset and the machine; None or absent means not given.

    Raises:
        InvalidArgument: a value is refused; the message says what is accepted.
    """
    from ... import jobs

    given = {name: value for name, value in asked.items() if value is not None}
    plugins = list(given.get("plugins", []))
    import_plugins(plugins, [os.getcwd()])
    job, preset = given.get("job", "resnet"), given.get("preset", "default")
    kind = jobs.get(job, jobs.FusedJob)
    if preset not in _LENGTHS:
        raise InvalidArgument(f"unknown preset {preset!r}; accepted: {', '.join(_LENGTHS)}")
    device = choose_device(given.get("device", "auto"))
    own = kind.preset(preset, device)
    epochs, iters = _LENGTHS[preset]
    precision, offered = given.get("precision", "fp32"), list(kind.precisions(device))
    if precision not in offered:
        raise InvalidArgument(f"unknown precision {precision!r}; job {job} has {', '.join(offered)}")
    short = _QUICK.get(job, {}) if preset == "quick" else {}
    epochs = _least("epochs", given.get("epochs", epochs), 1)
    iters = _least("iters_per_epoch", given.get("iters_per_epoch", iters), 1)
    return ConvergenceSettings(
        job=job, plugins=plugins, preset=preset, device=device, precision=precision,
        lrs=_rates(job, given.get("lrs"), given.get("models")), epochs=epochs, iters_per_epoch=iters,
        batch_size=_least("batch_size", given.get("batch_size", own.get("batch_size", 32)), 1),
        seed=given.get("seed", 1), data=given.get("data", "auto"), dataroot=given.get("dataroot"),
        threads=_least("threads", given.get("threads", host.num_cpus()), 1),
        smooth=_least("smooth", given.get("smooth", max(1, min(100, epochs * iters // 20))), 1),
        timeout_s=float(given.get("timeout_s", 24 * 3600.0)),
        options={**own.get("options", {}), **short, **_options(kind, given.get("options", {}))},
    )  # fmt: skip


def _options(kind: Any, given: Any) -> dict[str, Any]:
    """The job's own options, from a dictionary or as the command line gives them."""
    if isinstance(given, Mapping):
        return dict(given)
    return parse_options(given, kind.option_defaults(), kind.name)


def _rates(job: str, lrs: Sequence[Any] | None, models: int | None) -> list[float]:
    """Learning rates, one per model, each another one: they name the columns of the table."""
    if lrs:
        values = [_rate(part) for each in lrs for part in str(each).split(",") if part.strip()]
    else:
        values = list(_HFTA_RATES) if job == "resnet" and models in (None, _MODELS) else []
    if models is not None and values and len(values) != _least("models", models, 1):
        raise InvalidArgument(f"--models {models} and --lrs with {len(values)} values: give one per model")
    if not values:
        from ...jobs.trajectories import default_rates

        values = default_rates(job, _least("models", _MODELS if models is None else models, 1))
    if len(set(values)) < len(values):
        raise InvalidArgument(f"--lrs {','.join(f'{v:g}' for v in values)}: each model needs another one")
    return values


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InvalidArgument(f"--lrs {text}: wants numbers, as .002,.001,.0005") from None
    if not 0 < value < math.inf:
        raise InvalidArgument(f"--lrs {text}: a learning rate is a positive number")
    return value


def _least(name: str, value: Any, least: int) -> int:
    if value < least:
        raise InvalidArgument(f"--{name.replace('_', '-')} {value}: must be at least {least}")
    return int(value)
