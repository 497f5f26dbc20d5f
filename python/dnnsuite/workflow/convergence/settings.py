# SPDX-License-Identifier: MIT
"""Settings of a comparison of convergence: a user's options with every default resolved and every value checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InvalidArgument
from ..common_settings import CommonSettings, at_least, one_of, resolve_common

# Options that a user may give, by the names of their fields.
OPTIONS = frozenset(
    {
        "job", "lrs", "models", "plugins", "preset", "device", "precision", "epochs", "iters_per_epoch",
        "batch_size",
    }
    | {"seed", "data", "dataroot", "threads", "timeout_s", "options", "smooth"}
)  # fmt: skip
# Epochs and iterations per epoch; `paper` is HFTA's protocol: CIFAR-10 in batches of 128.
_LENGTHS = {"quick": (3, 20), "default": (3, 20), "paper": (100, 391)}
_QUICK = {"resnet": {"width": 8}}  # so that it takes less than a minute on two cores
_HFTA_RATES = (0.002, 0.001, 0.0005)
_MODELS = 3
_DEFAULTS = {"batch_size": 32, "timeout_s": 24 * 3600.0}


@dataclass(frozen=True)
class ConvergenceSettings(CommonSettings):
    """Settings that decide what is compared."""

    precision: str
    lrs: list[float]
    smooth: int

    @property
    def iterations(self) -> int:
        """Iterations of each model."""
        return self.epochs * self.iters_per_epoch


def resolve(asked: Mapping[str, Any]) -> ConvergenceSettings:
    """Resolve the settings from the options given, the job's preset and the machine; None or absent means not given.

    Raises:
        InvalidArgument: a value is refused; the message says what is accepted.
    """
    given = {name: value for name, value in asked.items() if value is not None}
    lengths = _LENGTHS.get(given.get("preset", "default"), _LENGTHS["default"])
    length = {"epochs": lengths[0], "iters_per_epoch": lengths[1]}
    kind, _, common = resolve_common(given.get("job", "resnet"), {**length, **given}, _DEFAULTS, _QUICK)
    precision = one_of("precision", given.get("precision", "fp32"), list(kind.precisions(common["device"])))
    iterations = common["epochs"] * common["iters_per_epoch"]
    return ConvergenceSettings(
        **common,
        precision=precision,
        lrs=_rates(kind.name, given.get("lrs"), given.get("models")),
        smooth=at_least("smooth", given.get("smooth", max(1, min(100, iterations // 20)))),
    )


def _rates(job: str, lrs: Sequence[Any] | None, models: int | None) -> list[float]:
    """Learning rates, one per model, each another one: they name the columns of the table."""
    if lrs:
        values = [_rate(part) for each in lrs for part in str(each).split(",") if part.strip()]
    else:
        values = list(_HFTA_RATES) if job == "resnet" and models in (None, _MODELS) else []
    if models is not None and values and len(values) != at_least("models", models):
        raise InvalidArgument(f"--models {models} and --lrs with {len(values)} values: give one per model")
    if not values:
        from ...jobs.trajectories import default_rates

        values = default_rates(job, at_least("models", _MODELS if models is None else models))
    if len(set(values)) < len(values):
        raise InvalidArgument(f"--lrs {','.join(f'{v:g}' for v in values)}: each model needs another one")
    return values


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InvalidArgument(f"--lrs {text}: expected numbers, e.g. .002,.001,.0005") from None
    if not 0 < value < math.inf:
        raise InvalidArgument(f"--lrs {text}: a learning rate is a positive number")
    return value
