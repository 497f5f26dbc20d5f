# SPDX-License-Identifier: MIT
"""Jobs of the benchmark suite: one plain model of torch; a step draws a batch and trains on it."""

from __future__ import annotations

import abc
import contextlib
import time
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ..data import Origin, imagenet
from ..data.endless import EndlessLoader
from ..errors import InvalidArgument
from . import distributed
from ._job import Job, JobConfig, option

if TYPE_CHECKING:
    import torch


class PlainJob(Job):
    """A workload of one plain model (`config.B == 0`).

    A subclass names its `defaults` (as in `baselines.json`: batch_size, repeat, number, and its options, spelled like
    the flags with underscores) and the smaller ones of a `smoke` run on two cores, and defines `setup`, `batch` and
    `train`. Starting loaders and compiling belong to `setup`.
    """

    family: ClassVar[str] = "plain"
    families: ClassVar[tuple[str, ...]] = ("plain", "fused")  # a suite runs workloads, too
    scope: ClassVar[str] = "student"  # one copy per slot; "all": one that has the machine
    distributed: ClassVar[bool] = False  # of several processes where `scope` is "all": one for each device
    default_precision: ClassVar[str] = "fp32"
    defaults: ClassVar[Mapping[str, Any]]
    smoke: ClassVar[Mapping[str, Any]] = {}
    #: Source of the batches in the timed loop: `memory`, or a `loader` that is waited for.
    feed: str = "memory"
    #: False for what has no weights in this process; a suite wants to see the weights of all others change.
    trains: ClassVar[bool] = True

    def __init__(self, config: JobConfig) -> None:
        import torch

        super().__init__(config)
        if config.B != 0:
            raise InvalidArgument(f"job {self.name} trains one plain model, not an array: B must be 0, got {config.B}")
        own = [name for name in self.defaults if name not in ("batch_size", "repeat", "number")]
        option(config.options, own, self.name)
        option(config.hyper, [], self.name)
        self.options = {**{name: self.defaults[name] for name in own}, **config.options}
        self.device = torch.device(config.device)
        self.data_wait_ns = 0  # time spent in `batch` so far
        self._last: torch.Tensor | None = None
        self._streams: list[EndlessLoader] = []  # of files, that `close` ends
        half = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(config.precision)
        self._autocast_dtype = half
        # Only fp16 can underflow; bf16 has fp32's range.
        self._scaler = torch.amp.GradScaler(self.device.type) if half == torch.float16 else None
        self.steps_tried = self.steps_skipped = 0  # of the optimizers, under loss scaling
        self._counted: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()

    @classmethod
    def settings(cls, preset: str) -> dict[str, Any]:
        """Return batch size, observations, batches in each, and options of a suite's preset."""
        return {**cls.defaults, **(cls.smoke if preset in ("smoke", "quick") else {})}

    @classmethod
    def precisions(cls, device: str) -> list[str]:
        return ["fp32", "bf16", "fp16"]

    @abc.abstractmethod
    def batch(self) -> Any:
        """Return the next batch, on the device: the wait for data."""

    @abc.abstractmethod
    def train(self, batch: Any) -> torch.Tensor:
        """Learn from `batch`; return its loss `[]` on the device, without waiting for it."""

    def with_loader(self) -> Origin | None:
        """Draw batches from a loader of files from now on, as the original suite's timed loop did.

        Returns:
            Where the files come from; None if the job has no such loader, and goes on as before.
        """
        return None

    def image_stream(self, size: int, augment: bool = False) -> tuple[EndlessLoader, Origin]:
        """Return (loader of this process's image files, their origin) for `with_loader`; `close` ends it."""
        config, place = self.config, distributed.place_of(self.scope)
        loader, origin = imagenet.stream(
            config.data,
            config.dataroot,
            config.batch_size,
            size,
            augment=augment,
            seed=config.data_seed,
            workers=self.options["workers"],
            rank=place.rank,
            world_size=place.world_size,
        )
        self._streams.append(loader)
        return loader, origin

    def close(self) -> None:
        """End the loaders."""
        while self._streams:
            self._streams.pop().close()

    def step(self) -> None:
        began_ns = time.monotonic_ns()
        batch = self.batch()
        self.data_wait_ns += time.monotonic_ns() - began_ns
        self._last = self.train(batch).detach()

    @property
    def last_loss(self) -> torch.Tensor:
        """The last step's loss `[]`, on the device. Reading its value waits for the step."""
        assert self._last is not None, "no step was made yet"
        return self._last

    def losses(self) -> list[float]:
        return [] if self._last is None else [float(self._last)]

    def metrics(self) -> dict[str, float]:
        """Return measures of learning beside the loss (PSNR, reward, ...), by name. Never called in a window."""
        return {}

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            import torch

            torch.cuda.synchronize(self.device)

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Context manager: torch.autocast in half precision; nothing in fp32."""
        if self._autocast_dtype is None:
            return contextlib.nullcontext()
        import torch

        return torch.autocast(self.device.type, dtype=self._autocast_dtype)

    def update(
        self,
        loss: torch.Tensor,
        optimizer: torch.optim.Optimizer,
        clip_norm: float | None = None,
        parameters: Iterable[torch.Tensor] = (),
    ) -> None:
        """Take a backward pass and one step of `optimizer`, with loss scaling in fp16; gradients of `parameters` are
        clipped."""
        optimizer.zero_grad(set_to_none=True)
        self.backward(loss)
        self.advance(optimizer, clip_norm, parameters)

    def backward(self, loss: torch.Tensor) -> None:
        """Add to the gradients, in fp16 those of the scaled loss."""
        (loss if self._scaler is None else self._scaler.scale(loss)).backward()

    def advance(
        self, optimizer: torch.optim.Optimizer, clip_norm: float | None = None, parameters: Iterable[torch.Tensor] = ()
    ) -> None:
        """Take one step of `optimizer` on the gradients that `backward` left."""
        if self._scaler is not None:
            self._scaler.unscale_(optimizer)
        if clip_norm is not None:
            import torch

            torch.nn.utils.clip_grad_norm_(parameters, clip_norm)
        if self._scaler is None:
            optimizer.step()
        else:
            self._try(optimizer)
            self._scaler.step(optimizer)
            self._scaler.update()

    def _try(self, optimizer: torch.optim.Optimizer) -> None:
        """Count a step as skipped until the optimizer makes it: the scaler skips it where a gradient overflows."""
        if optimizer not in self._counted:
            optimizer.register_step_post_hook(self._stepped)
            self._counted.add(optimizer)
        self.steps_tried += 1
        self.steps_skipped += 1

    def _stepped(self, *_: object) -> None:
        self.steps_skipped -= 1

    def settle_loss_scale(self, most: int = 12) -> None:
        """Make steps until one is not skipped for its loss scale, which begins far too high for most models.

        Measured steps would otherwise lack the optimizer's work. Does nothing without loss scaling.
        """
        if self._scaler is None:
            return
        usual = self._scaler.get_backoff_factor()
        self._scaler.set_backoff_factor(1 / 16)
        for _ in range(most):
            skipped = self.steps_skipped
            self.step()
            if self.steps_skipped == skipped:
                break
        self._scaler.set_backoff_factor(usual)
        self.steps_tried = self.steps_skipped = 0
        self.synchronize()

    def weights(self) -> list[torch.Tensor]:
        """Return the parameters that training changes; a job whose model is not `self.model` names its own."""
        import torch

        model = getattr(self, "model", None)
        return [p for p in model.parameters() if p.requires_grad] if isinstance(model, torch.nn.Module) else []
