# SPDX-License-Identifier: MIT
"""What a training workload is to the rest of the library."""

from __future__ import annotations

import abc
import dataclasses
import importlib
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from ..errors import InvalidArgument

JobT = TypeVar("JobT", bound="type[Job]")


@dataclasses.dataclass
class JobConfig:
    """Everything that decides what one process trains.

    `B` models in a fused array, 0 for one plain torch model. `hyper` has one value per model of each
    hyper-parameter. Model i starts from `seed + i`; all models see the batches of `data_seed`. `threads` None
    is all cores. `options` are the job's own (`bert`: emsize, nhid, nlayers, nhead, bptt, dropout,
    vocab_size).
    """

    B: int = 0
    device: str = "cpu"
    precision: str = "fp32"
    batch_size: int = 32
    seed: int = 0
    data_seed: int = 0
    hyper: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    data: str = "auto"
    dataroot: str | None = None
    threads: int | None = None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def models(self) -> int:
        """How many models this process trains."""
        return max(self.B, 1)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a record."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> JobConfig:
        """Raises InvalidArgument naming a field that does not exist."""
        known = {field.name for field in dataclasses.fields(cls)}
        for name in values:
            if name not in known:
                raise InvalidArgument(f"a job has no setting {name!r}; it has {', '.join(sorted(known))}")
        return cls(**values)


class Job(abc.ABC):
    """A workload: model, data, optimizer, unit and defaults. It knows nothing of modes, instruments or records."""

    name: ClassVar[str]
    description: ClassVar[str]
    unit: ClassVar[str]

    def __init__(self, config: JobConfig) -> None:
        if config.B < 0:
            raise InvalidArgument(f"B must be 0 (one plain model) or more, got {config.B}")
        if config.batch_size < 1:
            raise InvalidArgument(f"batch_size must be 1 or more, got {config.batch_size}")
        allowed = self.precisions(config.device)
        if config.precision not in allowed:
            raise InvalidArgument(
                f"precision {config.precision!r} is not one of {', '.join(allowed)} "
                f"(job {self.name} on {config.device})"
            )
        for name, values in config.hyper.items():
            if len(values) != config.models:
                raise InvalidArgument(
                    f"hyper-parameter {name} has {len(values)} values for {config.models} models"
                )
        self.config = config

    @classmethod
    def precisions(cls, device: str) -> list[str]:
        """The precisions that the job can train in on `device`."""
        return ["fp32", "amp"] if device.startswith("cuda") else ["fp32"]

    @classmethod
    @abc.abstractmethod
    def preset(cls, name: str, device: str) -> dict[str, Any]:
        """Defaults of the workflow by name (`quick`, `paper`): epochs, iters_per_epoch, repeats, max_B, max_num_Bs."""

    @classmethod
    @abc.abstractmethod
    def hyperparameters(cls, generator: random.Random, models: int) -> dict[str, list[float]]:
        """Random hyper-parameters for `models` models, as a sweep would draw them."""

    @classmethod
    @abc.abstractmethod
    def check_equality(cls, config: JobConfig, steps: int = 3) -> dict[str, Any]:
        """Trains the fused array and B separate torch models alike and compares their losses; see the job."""

    @abc.abstractmethod
    def setup(self) -> None:
        """Loads the data, makes models and optimizers."""

    @abc.abstractmethod
    def step(self) -> None:
        """Trains one iteration of every model. May return before it is done."""

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Waits until every step is done."""

    @abc.abstractmethod
    def end_epoch(self) -> None:
        """Goes on to the next epoch: learning-rate schedules."""

    @abc.abstractmethod
    def losses(self) -> list[float]:
        """The last step's loss of each model."""

    @abc.abstractmethod
    def provenance(self) -> dict[str, Any]:
        """Where the data came from, their licence, and what the model is."""

    def close(self) -> None:  # noqa: B027  (a job without threads has nothing to free)
        """Frees threads and memory."""

    @property
    def items_per_step(self) -> int:
        """Items, in `unit`, of one step, counted over all models."""
        return self.config.batch_size * self.config.models


_REGISTRY: dict[str, type[Job]] = {}
# The package's own jobs and their modules, which register themselves. They import torch: not before one is wanted.
_OWN = {"bert": ".bert"}


def register(name: str) -> Callable[[JobT], JobT]:
    """Class decorator that makes a Job known by `name`. Raises InvalidArgument if another class has it."""

    def add(job: JobT) -> JobT:
        if name in _REGISTRY and _REGISTRY[name].__qualname__ != job.__qualname__:
            raise InvalidArgument(f"job {name!r} is already {_REGISTRY[name].__qualname__}")
        job.name = name
        _REGISTRY[name] = job
        return job

    return add


def names() -> list[str]:
    """The package's own jobs and those registered."""
    return sorted({*_OWN, *_REGISTRY})


def get(name: str) -> type[Job]:
    """The job called `name`. Raises InvalidArgument listing the known ones."""
    if name not in _REGISTRY and name in _OWN:
        importlib.import_module(_OWN[name], __package__)
    try:
        return _REGISTRY[name]
    except KeyError:
        raise InvalidArgument(f"no job {name!r}; there is {', '.join(names())}") from None


def option(options: Mapping[str, Any], allowed: Sequence[str], job: str) -> None:
    """Refuses options that the job does not have."""
    for name in options:
        if name not in allowed:
            raise InvalidArgument(f"job {job} has no option {name!r}; it has {', '.join(allowed)}")
