# SPDX-License-Identifier: MIT
"""The interface of a training workload for timing, observing and running it, and the registry by name."""

from __future__ import annotations

import abc
import dataclasses
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from ..errors import InvalidArgument, did_you_mean, some_of

JobT = TypeVar("JobT", bound="type[Job]")


@dataclasses.dataclass
class JobConfig:
    """Settings of the training in one process.

    Attributes:
        B: models in a fused array; 0 for one plain torch model.
        hyper: hyper-parameters by name, one value per model.
        seed: model i starts from `seed + i`.
        data_seed: seed of the batches, which all models share.
        threads: CPU threads; None for all cores.
        options: the job's own options (`bert`: emsize, nhid, nlayers, nhead, bptt, dropout, vocab_size).
        unfused: names of modules that run model by model in the array.
        steps: training steps that the run will have, for schedules by steps; 0 for those of the default preset.

    >>> from dnnsuite import jobs
    >>> config = jobs.JobConfig(B=2, batch_size=8, hyper={"lr": [0.1, 0.01]})
    >>> config.models
    2
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
    unfused: list[str] = dataclasses.field(default_factory=list)
    steps: int = 0

    @property
    def models(self) -> int:
        """Number of models that this process trains."""
        return max(self.B, 1)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a record."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> JobConfig:
        """Make a configuration of a record's plain values.

        Raises:
            InvalidArgument: a field does not exist; the message names it.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        for name in values:
            if name not in known:
                raise InvalidArgument(
                    f"a job has no setting {name!r}{did_you_mean(name, known)}; it has {', '.join(sorted(known))}"
                )
        return cls(**values)


class Job(abc.ABC):
    """Model, data, optimizer, unit and defaults. It knows nothing of modes, instruments or records."""

    name: ClassVar[str]
    description: ClassVar[str]
    unit: ClassVar[str]
    #: Jobs of two families may have one name: `dcgan` is a plain job of the suite, and a fused one.
    family: ClassVar[str] = ""
    #: Families in which one is looked for where this kind is asked for, in order; none for all of them.
    families: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: JobConfig) -> None:
        if config.B < 0:
            raise InvalidArgument(f"B must be 0 (one plain model) or more, got {config.B}")
        if config.batch_size < 1:
            raise InvalidArgument(f"batch_size must be 1 or more, got {config.batch_size}")
        allowed = self.precisions(config.device)
        if config.precision not in allowed:
            hint = did_you_mean(config.precision, allowed)
            raise InvalidArgument(
                f"precision {config.precision!r} is not one of {', '.join(allowed)} "
                f"(job {self.name} on {config.device}){hint}"
            )
        for name, values in config.hyper.items():
            if len(values) != config.models:
                raise InvalidArgument(f"hyper-parameter {name} has {len(values)} values for {config.models} models")
        self.config = config

    def __repr__(self) -> str:
        size = f"B={self.config.B}, batch_size={self.config.batch_size}"
        return f"{type(self).__name__}({self.name!r}, {size}, {self.config.precision} on {self.config.device})"

    @classmethod
    @abc.abstractmethod
    def precisions(cls, device: str) -> list[str]:
        """Return the precisions that the workload can train in on `device`."""

    @abc.abstractmethod
    def setup(self) -> None:
        """Load the data and make models and optimizers."""

    @abc.abstractmethod
    def step(self) -> None:
        """Train every model for one iteration. May return before it is done."""

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait until every step is done."""

    @abc.abstractmethod
    def losses(self) -> list[float]:
        """Return the last step's loss of each model."""

    @abc.abstractmethod
    def provenance(self) -> dict[str, Any]:
        """Return the provenance of the data, their licence, and a description of the model."""

    def close(self) -> None:  # noqa: B027  (one without threads has nothing to free)
        """Free threads and memory."""

    @property
    def items_per_step(self) -> int:
        """Items, in `unit`, of one step, counted over all models."""
        return self.config.batch_size * self.config.models


_REGISTRY: dict[str, dict[str, type[Job]]] = {}  # by family, then by name
# The package's own and their modules, which register themselves. Modules of plain jobs import torch in the functions
# that use it: a command that starts a suite asks for settings only, and leaves torch to its workers.
_PLAIN_JOBS = {  # of the benchmark suite, in its order
    "loader": ".loader",
    "translator": ".translator",
    "wlm": ".wlm",
    "wlmfp16": ".wlm",
    "cart": ".cart",
    "atari": ".atari",
    "ssd": ".ssd",
    "fast_style": ".fast_style",
    "dcgan": ".dcgan",
    "convnet": ".convnet",
    "convnet_fp16": ".convnet",
    "convnet_distributed": ".convnet",
    "convnet_distributed_fp16": ".convnet",
    "dcgan_all": ".dcgan",
    "scaling": ".scaling",
}
_FUSED_JOBS = {  # workloads: some of that suite, and HFTA's workflows
    "toy_reg": ".toy_reg",
    "toy_lstm": ".toy_lstm",
    "vae": ".vae",
    "reso": ".reso",
    "recom": ".recom",
    "bert": ".fused.bert",
    "transformer": ".fused.transformer",
    "dcgan": ".fused.dcgan",
    "mobilenet_v3_small": ".fused.images",
    "mobilenet_v3_large": ".fused.images",
    "pointnet_cls": ".fused.pointnet",
    "pointnet_seg": ".fused.pointnet",
    "resnet": ".fused.images",
    "imagenet-resnet50": ".imagenet_resnet50",
    **{name: f".suite2026.{name}" for name in ("gpt", "lora", "moe", "mamba", "dpo", "dit", "dcnv2", "ppo")},
}
_OWN = {"plain": _PLAIN_JOBS, "fused": _FUSED_JOBS}  # where two have one name, the first is meant
# Names by which HFTA's scripts know its workflows.
_ALIASES = {"mobilenet_cifar10_v3s": "mobilenet_v3_small", "mobilenet_cifar10_v3l": "mobilenet_v3_large"}


def register(name: str) -> Callable[[JobT], JobT]:
    """Register the decorated class as the job `name`.

    Raises:
        InvalidArgument: another class of its family has the name.

    >>> from dnnsuite import jobs
    >>> @jobs.register("my_job")  # doctest: +SKIP
    ... class MyJob(jobs.PlainJob): ...
    """

    def add(workload: JobT) -> JobT:
        known = _REGISTRY.setdefault(workload.family, {})
        _load(workload.family, name)  # a name of ours is taken before anyone has used it
        if name in known and _home(known[name]) != _home(workload):
            raise InvalidArgument(f"job {name!r} is already {known[name].__qualname__}")
        workload.name = name
        known[name] = workload
        return workload

    return add


def _load(family: str, name: str) -> None:
    """Import the module of a job of ours, which registers it, if it is not registered yet."""
    if name not in _REGISTRY.get(family, {}) and name in _OWN.get(family, {}):
        importlib.import_module(_OWN[family][name], __package__)


def _home(workload: type) -> tuple[str, str]:
    """Module and name of a class, the same for one that is defined anew when its module is run or loaded again."""
    spec = getattr(sys.modules.get(workload.__module__), "__spec__", None)
    return spec.name if spec else workload.__module__, workload.__qualname__


def _families(kind: type) -> list[str]:
    """List the families that a workload of `kind` may be in, in order of search."""
    families = getattr(kind, "families", ())
    return [*families] if families else [*_OWN, *(known for known in _REGISTRY if known not in _OWN)]


def names(kind: type = Job) -> list[str]:
    """List the names of all jobs, the package's own and registered ones.

    Args:
        kind: `FusedJob` or `PlainJob` for those of one kind.

    >>> from dnnsuite import jobs
    >>> "bert" in jobs.names(jobs.FusedJob)
    True
    """
    found = {name for family in _families(kind) for name in (*_OWN.get(family, ()), *_REGISTRY.get(family, ()))}
    return sorted(found)


def get(name: str, kind: type = Job) -> Any:
    """Return the class of the job `name`; names of HFTA's workflows are known too.

    Args:
        name: name of a job, as `dnnsuite list` prints it.
        kind: `FusedJob` or `PlainJob` where both have the name; by default the plain one is meant.

    Raises:
        InvalidArgument: there is none of this kind; the message has the nearest name.

    >>> from dnnsuite import jobs
    >>> jobs.get("toy_reg").unit
    'samples'
    """
    name = _ALIASES.get(name, name)
    for family in _families(kind):
        _load(family, name)
        if name in _REGISTRY.get(family, {}):
            return _REGISTRY[family][name]
    if name in names():
        others = some_of(names(kind), "`dnnsuite list`")
        raise InvalidArgument(f"job {name!r} is no {kind.__name__}, and one is needed here; there is {others}")
    known = names(kind)
    raise InvalidArgument(f"no job {name!r}{did_you_mean(name, known)}; there is {some_of(known, '`dnnsuite list`')}")


def option(options: Mapping[str, Any], allowed: Sequence[str], job: str) -> None:
    """Refuse options that the job does not have."""
    for name in options:
        if name not in allowed:
            has = ", ".join(allowed) or "none"
            raise InvalidArgument(f"job {job} has no option {name!r}{did_you_mean(name, allowed)}; it has {has}")
