# SPDX-License-Identifier: MIT
"""The interface of a job for timing, observing, sweeping and running it, and the registry by name."""

from __future__ import annotations

import abc
import dataclasses
import importlib
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from .._lazy import torch
from ..errors import InvalidArgument, did_you_mean, some_of
from .workload import MAKES_BATCHES, Card

if TYPE_CHECKING:
    from ..data import Origin

_PROTOCOL = ("batch_size", "repeat", "number")  # settings that are no option

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
                    f"a job has no setting {name!r}{did_you_mean(name, known)}; it has {some_of(sorted(known))}"
                )
        return cls(**values)


class Job(abc.ABC):
    """The interface of a job for every command. It knows nothing of modes, instruments or records.

    `declare` makes one of a `Workload`, which defines all of it. A job that no workload can describe is a separate
    class with `defaults` (batch_size, repeat, number, and its options) and smaller values for a `smoke` run on two
    cores.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    unit: ClassVar[str]
    scope: ClassVar[str] = "student"  # one copy per slot; "all": one that has the machine
    distributed: ClassVar[bool] = False  # of several processes where `scope` is "all": one for each device
    default_precision: ClassVar[str] = "fp32"
    defaults: ClassVar[Mapping[str, Any]] = {"batch_size": 1, "repeat": 30, "number": 1}
    smoke: ClassVar[Mapping[str, Any]] = {}
    #: Source of the batches in the timed loop: `memory`, or a `loader` that is waited for.
    feed: str = "memory"
    #: False for what has no weights in this process; a suite wants to see the weights of all others change.
    trains: ClassVar[bool] = True
    #: What else there is to say of it; see `workload.Card`.
    card: ClassVar[Card | None] = None
    #: Why no array or sweep is made of it; empty where there can be one.
    alone: ClassVar[str] = ""
    data_wait_ns = 0  # time spent in batches so far
    steps_tried = steps_skipped = 0  # of the optimizers, under loss scaling

    def __init__(self, config: JobConfig) -> None:
        if config.B < 0:
            raise InvalidArgument(f"B must be 0 (one plain model) or more, got {config.B}")
        if config.B and self.alone:
            raise InvalidArgument(f"job {self.name} {self.alone}: B must be 0, got {config.B}")
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
        own = {name: value for name, value in self.defaults.items() if name not in _PROTOCOL}
        option(config.options, list(own), self.name)
        self.options = {**own, **config.options}
        self.config = config

    def __repr__(self) -> str:
        size = f"B={self.config.B}, batch_size={self.config.batch_size}"
        return f"{type(self).__name__}({self.name!r}, {size}, {self.config.precision} on {self.config.device})"

    @classmethod
    def precisions(cls, device: str) -> list[str]:
        """Return the precisions that the job can train in on `device`."""
        return ["fp32"]

    @classmethod
    def default_precisions(cls, device: str) -> list[str]:
        """Return the precisions that a workflow measures by default: those of HFTA that the job supports."""
        offered = cls.precisions(device)
        return [name for name in ("fp32", "amp") if name in offered] or offered

    @classmethod
    def settings(cls, preset: str) -> dict[str, Any]:
        """Return batch size, observations, batches in each, and options of a suite's preset."""
        return {**cls.defaults, **(cls.smoke if preset in ("smoke", "quick") else {})}

    @classmethod
    def option_defaults(cls) -> Mapping[str, Any] | None:
        """Return the job's options and their defaults; None where only the job itself knows them."""
        return None

    @classmethod
    def preset(cls, name: str, device: str) -> dict[str, Any]:
        """Return the values of a preset of a workflow (`quick`, `default`, `paper`)."""
        raise InvalidArgument(f"job {cls.name} has no preset of a workflow")

    @classmethod
    def hyperparameters(cls, generator: random.Random, models: int) -> dict[str, list[float]]:
        """Draw the hyper-parameters of `models` models, as a sweep would."""
        return {}

    @classmethod
    def check_equality(cls, config: JobConfig, steps: int = 3) -> dict[str, Any]:
        """Train the fused array and B separate torch models in the same way and compare their losses; see the job."""
        raise InvalidArgument(f"job {cls.name} has no array to compare")

    @classmethod
    def inspect(cls, config: JobConfig) -> int:
        """Load the data and make one model, as runs do, so that errors are raised before the first run.

        Returns:
            Bytes of one model's parameters; 0 if unknown.
        """
        return 0

    @abc.abstractmethod
    def setup(self) -> None:
        """Load the data and make models and optimizers; start loaders."""

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

    @property
    def device(self) -> torch.device:
        """The device of the models."""
        return torch.device(self.config.device)

    @property
    def last_loss(self) -> torch.Tensor | float:
        """Mean over the models of the last step's losses, `[]`, whose value is waited for; or its number."""
        losses = self.losses()
        return sum(losses) / len(losses)

    def metrics(self) -> dict[str, float]:
        """Return measures of learning other than the loss (PSNR, reward, ...), by name. Never called in a window."""
        return {}

    def quality(self, preset: str, metrics: Mapping[str, float]) -> dict[str, Any] | None:
        """Return the metric, its target in a preset, and whether it was reached; None without a target."""
        return None

    def weights(self) -> list[torch.Tensor]:
        """Return the parameters that training changes."""
        return []

    def with_loader(self) -> Origin | None:
        """Draw batches from a loader of files from now on, as the original suite's timed loop did.

        Returns:
            Where the files come from; None if the job has no such loader, and continues as before.
        """
        return None

    def hold_batches(self, count: int) -> bool:
        """From now on, train on the next `count` batches again and again, kept on the device; return False if that is
        not possible."""
        return False

    def settle_loss_scale(self) -> None:  # noqa: B027  (one without loss scaling has nothing to do)
        """Take steps until the loss scale skips none, because skipped steps lack the work of the optimizer."""

    def end_epoch(self) -> None:  # noqa: B027  (one without schedules has nothing to do)
        """Begin the next epoch: advance learning-rate schedules."""

    def close(self) -> None:  # noqa: B027  (one without threads has nothing to free)
        """Free threads and memory."""

    @property
    def items_per_step(self) -> int:
        """Items, in `unit`, of one step, counted over all models."""
        return self.config.batch_size * self.config.models


_REGISTRY: dict[str, type[Job]] = {}
# The package's own and their modules, which register themselves.
_OWN = {
    **dict.fromkeys(("toy_reg", "toy_lstm", "vae", "reso"), ".first_workloads"),
    **dict.fromkeys(("wlm", "wlmfp16", "translator"), ".recurrent"),
    **dict.fromkeys(("loader", "imagenet-resnet50"), ".imagenet"),
    **dict.fromkeys(("ssd", "detector"), ".detection"),
    **dict.fromkeys(("recom", "dcnv2"), ".recommendation"),
    **dict.fromkeys(("cart", "atari", "ppo"), ".reinforcement"),
    **dict.fromkeys(("fast_style", "dcgan", "dcgan_all"), ".photographs"),
    **dict.fromkeys(("convnet", "convnet_fp16", "convnet_distributed", "convnet_distributed_fp16"), ".photographs"),
    **dict.fromkeys(
        ("bert", "transformer", "mobilenet_v3_small", "mobilenet_v3_large", "resnet", "pointnet_cls", "pointnet_seg"),
        ".fused",
    ),
    **{name: f".suite2026.{name}" for name in ("conformer", "dino")},
    **dict.fromkeys(("dpo", "grpo"), ".suite2026.preferences"),
    **dict.fromkeys(("molecules", "rgat"), ".suite2026.graphs"),
    **dict.fromkeys(("gpt", "lora", "moe", "mamba"), ".suite2026.language"),
    **dict.fromkeys(("vit", "convnext", "dit", "unet"), ".suite2026.vision"),
}
# Why there is no array or sweep of these; known without their modules, of which a list of names imports none.
_SPREAD = "is one model on every device, which is not swept"
_ALONE = {
    **dict.fromkeys(("cart", "atari", "grpo", "ppo"), MAKES_BATCHES),
    **dict.fromkeys(("dcgan_all", "convnet_distributed", "convnet_distributed_fp16"), _SPREAD),
    "loader": "reads images and trains nothing",
    "translator": "packs sentences by their lengths, which no array does",
}
# Names by which HFTA's scripts know its workflows.
_ALIASES = {"mobilenet_cifar10_v3s": "mobilenet_v3_small", "mobilenet_cifar10_v3l": "mobilenet_v3_large"}


def register(name: str) -> Callable[[JobT], JobT]:
    """Register the decorated class as the job `name`.

    Raises:
        InvalidArgument: another class has the name.

    >>> from dnnsuite import jobs
    >>> @jobs.register("my_job")  # doctest: +SKIP
    ... class MyJob(jobs.Job): ...
    """

    def add(job: JobT) -> JobT:
        _load(name)  # a name of ours is taken before anyone has used it
        if name in _REGISTRY and (_home(_REGISTRY[name]) != _home(job) or _both_there(_REGISTRY[name], job)):
            whose = f"of {_REGISTRY[name].__module__}" if name not in _OWN else "of dnnsuite's"
            raise InvalidArgument(f"there is a job {name!r} {whose} already: choose another name")
        job.name, job.alone = name, _ALONE.get(name, job.alone)
        _REGISTRY[name] = job
        return job

    return add


def _load(name: str) -> None:
    """Import the module of a job of ours, which registers it, if it is not registered yet."""
    if name not in _REGISTRY and name in _OWN:
        importlib.import_module(_OWN[name], __package__)


def _home(job: type) -> tuple[str, str]:
    """Module and name of a class, the same for one that is defined anew when its module is run or loaded again."""
    spec = getattr(sys.modules.get(job.__module__), "__spec__", None)
    return spec.name if spec else job.__module__, job.__qualname__


def _both_there(old: type, new: type) -> bool:
    """True if one module declares two workloads under one name: its model of the first was not defined anew since."""
    models = [getattr(getattr(kind, "workload", None), "model", None) for kind in (old, new)]
    kept = getattr(sys.modules.get(old.__module__), getattr(models[0], "__name__", ""), None)
    return models[0] is not None and kept is models[0] is not models[1]


def names(swept: bool = False) -> list[str]:
    """List the names of all jobs, the package's own and registered ones.

    Args:
        swept: only those that can be swept or trained as an array.

    >>> from dnnsuite import jobs
    >>> "cart" in jobs.names(), "cart" in jobs.names(swept=True)
    (True, False)
    """
    alone = {*_ALONE, *(name for name, kind in _REGISTRY.items() if kind.alone)} if swept else set()
    return sorted({*_OWN, *_REGISTRY} - alone)


def get(name: str, swept: bool = False) -> Any:
    """Return the class of the job `name`; names of HFTA's workflows are known too.

    Args:
        name: name of a job, as `dnnsuite list` prints it.
        swept: refuse a job that can be neither swept nor trained as an array.

    Raises:
        InvalidArgument: there is none, or none that is swept; the message has the nearest name, or why.

    >>> from dnnsuite import jobs
    >>> jobs.get("toy_reg").unit
    'samples'
    """
    name = _ALIASES.get(name, name)
    _load(name)
    if name not in _REGISTRY:
        known = names(swept)
        there = some_of(known, "`dnnsuite list`")
        raise InvalidArgument(f"no job {name!r}{did_you_mean(name, known)}; available: {there}")
    if swept and _REGISTRY[name].alone:
        there = some_of(names(swept), "`dnnsuite list`")
        raise InvalidArgument(f"job {name} {_REGISTRY[name].alone}; available: {there}")
    return _REGISTRY[name]


def option(options: Mapping[str, Any], allowed: Sequence[str], job: str) -> None:
    """Refuse options that the job does not have."""
    for name in options:
        if name not in allowed:
            has = ", ".join(allowed) or "none"
            raise InvalidArgument(f"job {job} has no option {name!r}{did_you_mean(name, allowed)}; it has {has}")
