# SPDX-License-Identifier: MIT
"""A training run, written once: model, data, loss, optimizer, schedule, metrics and the way they are computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Optimizer

from .._runs.identity import Identity, identity_of
from ..errors import InvalidArgument, check_choice
from ..models import ResNet50
from .lines import LINES
from .loading import Order
from .schedules import Schedule, SteppedWarmup, WarmupPlateau, tbd_pytorch, tbd_tf2
from .settings import Settings
from .sources import Data, compared

if TYPE_CHECKING:
    from .record import Until


class TopK:
    """Number of samples whose label is among the k highest scores, for several k.

    Attributes:
        names: acc1, acc5, … in the order of the counts.
    """

    def __init__(self, ks: Sequence[int] = (1, 5)) -> None:
        self.ks = tuple(ks)
        self.names = tuple(f"acc{k}" for k in ks)

    def __repr__(self) -> str:
        return f"TopK({self.ks})"

    def __call__(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Scores `[..., N, C]` and labels `[N]` → counts float64 `[len(names), ...]`."""
        most = min(max(self.ks), outputs.shape[-1])
        hits = outputs.topk(most, dim=-1).indices == labels[:, None]
        return torch.stack([hits[..., :k].sum((-2, -1)) for k in self.ks]).double()


_PRECISIONS = ("fp32", "bf16", "fp16")


class Metrics(Protocol):
    """Counts of samples by name; divided by the samples seen they are the metrics."""

    names: tuple[str, ...]

    def __call__(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Float64 `[len(names)]` for a batch."""


@dataclass(frozen=True)
class ProfileWindow:
    """Epoch (from 1) that runs inside NVTX ranges and CUDA's profiler control; every epoch ends after `iterations`."""

    epoch: int
    iterations: int


@dataclass(frozen=True)
class Experiment:
    """Definition of a training run: model, data, optimizer, schedule and length.

    Attributes:
        name: name of the run in tables and the record.
        model: function that makes the model; it is called after torch's random generators were seeded.
        data: training and validation samples.
        optimizer: function of the parameters that returns an optimizer.
        schedule: function of the optimizer and the number of steps in an epoch that returns a schedule.
        loss: function of (outputs, labels) that returns the mean over a batch.
        metrics: counts over every sample, in training and in validation.
        epochs: number of epochs.
        batch_size: number of samples in a batch, over all processes.
        valid_batch_size: number of samples in a validation batch, in one process.
        precision: fp32, or bf16 or fp16 by autocast; fp16 uses a loss scaler.
        channels_last: use the channels-last memory format for model and inputs.
        set_to_none: free gradients instead of zeroing them.
        cudnn_benchmark: let cuDNN choose kernels by trying them.
        drop_last: leave out the last batch of an epoch if it is not full.
        most_steps: largest number of steps per epoch; 0 for no limit.
        log_every: number of iterations between log lines, and between checks of the losses.
        checkpoint_every: number of iterations between checkpoints within an epoch; 0 for one after each epoch only.
        lines: format of the log lines about steps: sc20, tbd-pytorch or tbd-tf2.
        settings: other values that a resumed run must share; they are in the record.
        plan: file or suite that the run belongs to.
        clip_norm: norm at which the gradients of a model are clipped.
        after_step: function of the model that is called after each step, without gradients.
        accumulate: number of equal parts of a batch, a tuple of tensors, whose gradients are added up before a step.
        until: target that ends the run; an array ends when all its models have reached it.
        shard: shard parameters, gradients and optimizer state over the processes, instead of copying them to each.
    """

    name: str
    model: Callable[[], nn.Module]
    data: Data
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer]
    schedule: Callable[[Optimizer, int], Schedule] = field(
        default=lambda optimizer, steps: SteppedWarmup(optimizer, steps, ())
    )
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = cross_entropy
    metrics: Metrics = field(default_factory=TopK)
    epochs: int = 1
    batch_size: int = 128
    valid_batch_size: int = 128
    precision: str = "fp32"
    channels_last: bool = False
    compile: bool = False
    set_to_none: bool = True
    cudnn_benchmark: bool = False
    seed: int = 0
    workers: int = 0
    drop_last: bool = True
    most_steps: int = 0
    log_every: int = 20
    checkpoint_every: int = 0
    save_checkpoints: bool = True
    profile: ProfileWindow | None = None
    lines: str = "sc20"
    settings: Mapping[str, Any] = field(default_factory=dict)
    plan: str = "training"
    clip_norm: float | None = None
    after_step: Callable[[Any], None] | None = None
    accumulate: int = 1
    until: Until | None = None
    shard: bool = False

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "valid_batch_size", "log_every"):
            if getattr(self, name) < 1:
                raise InvalidArgument(f"{name} is {getattr(self, name)}: must be at least 1")
        check_choice("precision", self.precision, _PRECISIONS)
        check_choice("lines", self.lines, LINES)
        for part in ("train", "valid"):
            if not len(getattr(self.data, part)):
                raise InvalidArgument(f"{self.data.source} has no samples in its {part} part")
        if not self.order.steps:
            raise InvalidArgument(
                f"batch_size is {self.batch_size}, and there are {len(self.data.train)} training samples: no batch is "
                "full; take a smaller one, or drop_last=false"
            )

    @property
    def order(self) -> Order:
        """The order of the training samples."""
        most = self.most_steps
        if self.profile:
            most = min(most or self.profile.iterations, self.profile.iterations)
        return Order(len(self.data.train), self.batch_size, self.seed, self.drop_last, most)

    @property
    def identity(self) -> dict[str, Any]:
        """Return the settings that must be the same for another process to continue the run."""
        names = ("batch_size", "precision", "seed", "drop_last", "most_steps")
        own = {name: getattr(self, name) for name in names}
        return {**own, "samples": len(self.data.train), "classes": self.data.classes, **self.settings}

    def whole_identity(self, arrays: dict[int, Any]) -> Identity:
        """Return those settings, the data, and the code of model, loss, optimizer, schedule, metrics and `after_step`.

        Args:
            arrays: texts that stand for large arrays, which the models of an array share.
        """
        code = {name: getattr(self, name) for name in ("model", "loss", "optimizer", "schedule", "metrics")}
        code |= {} if self.after_step is None else {"after_step": self.after_step}
        data = {"data": compared(self.data.train), "validation data": compared(self.data.valid)}
        plain = {"channels_last": self.channels_last, "compile": self.compile, **self.identity}
        # With these values runs of earlier versions did not name them.
        usual = {"clip_norm": None, "set_to_none": True, "accumulate": 1}
        plain |= {name: getattr(self, name) for name, value in usual.items() if getattr(self, name) != value}
        return identity_of({**code, **data}, {name: str(value) for name, value in plain.items()}, arrays)


# Keys that change neither the numbers nor what they are compared with; a run may be resumed with others.
_FREE = frozenset(
    (
        "data_path",
        "max_epochs",
        "num_data_workers",
        "valid_batch_size_per_gpu",
        "log_to_screen",
        "log_to_tensorboard",
        "save_checkpoint",
        "log_freq",
        "enable_profiling",
        "profiling_epoch_start",
        "checkpoint_iters",
    )
)


def experiment_of(name: str, settings: Settings, data: Data, device: str, plan: str = "sc20") -> Experiment:
    """Make the experiment of a configuration.

    Args:
        name: name of the configuration, for tables and the record.
        settings: the configuration, from :func:`configuration`.
        data: samples, from :func:`find_data`.
        device: cpu or cuda.
        plan: file or suite that the run belongs to, for the record.
    """
    extra = settings.enable_extra_opts
    window = ProfileWindow(settings.profiling_epoch_start, settings.profiling_iters_per_epoch)
    return Experiment(
        name=name,
        model=partial(ResNet50, settings.num_classes, settings.width, small=_small(data)),
        data=data,
        optimizer=partial(
            SGD,
            lr=settings.peak_lr,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            fused=extra or None,
        ),
        schedule=partial(_schedule, settings.schedule, settings.lr_warmup_epochs),
        epochs=settings.max_epochs,
        batch_size=settings.batch_size,
        valid_batch_size=settings.valid_batch_size_per_gpu,
        precision=_precision(settings, device),
        channels_last=settings.enable_nhwc,
        compile=settings.enable_compile,
        set_to_none=extra,
        cudnn_benchmark=extra,
        seed=settings.seed,
        workers=settings.num_data_workers,
        drop_last=settings.drop_last,
        most_steps=settings.max_iters_per_epoch,
        log_every=settings.log_freq,
        checkpoint_every=settings.checkpoint_iters,
        save_checkpoints=settings.save_checkpoint,
        profile=window if settings.enable_profiling else None,
        lines=settings.schedule if settings.schedule.startswith("tbd-") else "sc20",
        settings={key: value for key, value in settings.to_dict().items() if key not in _FREE},
        plan=plan,
    )


def _small(data: Data) -> bool:
    """True for pictures of 32 pixels, whose first convolution keeps the resolution."""
    inputs, _ = data.valid.batch([0], 0) if hasattr(data.valid, "batch") else data.valid[0]
    return int(inputs.shape[-1]) <= 64


def _precision(settings: Settings, device: str) -> str:
    if not settings.enable_amp:
        return "fp32"
    if settings.amp_dtype != "auto":
        return settings.amp_dtype
    return "fp16" if device == "cuda" else "bf16"


def _schedule(name: str, warmup_epochs: int, optimizer: Optimizer, steps_per_epoch: int) -> Schedule:
    if name == "plateau":
        return WarmupPlateau(optimizer, warmup_epochs)
    if name == "tbd-pytorch":
        return tbd_pytorch(optimizer, steps_per_epoch)
    if name == "tbd-tf2":
        return tbd_tf2(optimizer, steps_per_epoch)
    return SteppedWarmup(optimizer, steps_per_epoch, (), warmup_epochs)
