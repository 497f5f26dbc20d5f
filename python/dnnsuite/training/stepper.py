# SPDX-License-Identifier: MIT
"""One step of an experiment on one device: forward, loss, backward, update; and the forward of validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .._seeds import seed_all
from ..jobs.distributed import as_shared, parallel, sharded, whole
from ..jobs.model_parts import split
from .experiment import Experiment
from .feed import Batch
from .order import Share
from .phases import Phases
from .processes import Processes
from .tally import Results

__all__ = ["Stepper", "autocast_of", "catch_up", "load_rows", "placed"]

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def autocast_of(experiment: Experiment, device: torch.device) -> torch.autocast:
    """Autocast to the precision of an experiment."""
    low = experiment.precision != "fp32"
    return torch.autocast(device.type, _DTYPES[experiment.precision], enabled=low)


def placed(batch: Batch, device: torch.device, memory_format: torch.memory_format) -> Batch:
    """Return a batch on a device, pictures in a memory format."""
    inputs, labels = batch
    if isinstance(inputs, (tuple, list)):  # all tensors of a workload's batch
        last = memory_format == torch.channels_last
        own = (x.to(memory_format=memory_format) if last and x.dim() == 4 else x for x in inputs)
        return tuple(x.to(device, non_blocking=True) for x in own), labels.to(device)
    fits = memory_format if inputs.dim() == 4 else torch.preserve_format
    inputs = inputs.to(device, non_blocking=True, memory_format=fits)
    return inputs, labels.to(device, non_blocking=True)


def load_rows(optimizer: Any, state: Mapping[str, Any]) -> None:
    """Load what an optimizer keeps of each parameter, but no hyper-parameters; nothing of another kind of optimizer."""
    groups, saved = optimizer.state_dict()["param_groups"], state["param_groups"]
    if [(set(own), own["params"]) for own in groups] == [(set(old), old["params"]) for old in saved]:
        optimizer.load_state_dict({"state": state["state"], "param_groups": groups})


def catch_up(schedule: Any, losses: Sequence[float]) -> None:
    """Bring a schedule that begins to where these epochs' validation losses have brought it."""
    for epoch, loss in enumerate(losses):
        schedule.begin_epoch(epoch)
        schedule.end_epoch(epoch, loss)


class Stepper:
    """Model, optimizer, schedule and loss scaler of an experiment.

    Attributes:
        model: the user's own module, whatever wraps it for several processes or a compiler.
        numbers: numbers of the models that train: here [0].
    """

    def __init__(self, experiment: Experiment, processes: Processes) -> None:
        self._experiment, self._device = experiment, processes.device
        self._world_size = processes.world_size
        self._format = torch.channels_last if experiment.channels_last else torch.contiguous_format
        seed_all(experiment.seed)
        made = experiment.model()
        self.model = sharded(made, processes.place, self._device) if experiment.shard else made.to(self._device)
        if experiment.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.numbers = [0]
        self.optimizer = experiment.optimizer(self.model.parameters())
        self.schedule = experiment.schedule(self.optimizer, experiment.order.steps)
        self.scaler = torch.amp.GradScaler(self._device.type, enabled=experiment.precision == "fp16")
        if experiment.cudnn_benchmark and self._device.type == "cuda":
            torch.backends.cudnn.benchmark = True
        if experiment.compile:
            self.model.compile()
        self._call = self.model if experiment.shard else parallel(self.model, processes.place, self._device)
        self._autocast = autocast_of(experiment, self._device)
        seed_all(experiment.seed + processes.rank)  # of dropout, which no two processes share

    def place(self, batches: Mapping[int, Batch]) -> Batch:
        """Return the batch of the one model on the device, in the memory format."""
        return placed(batches[0], self._device, self._format)

    def begin_epoch(self, epoch: int) -> None:
        """Set the learning rate of an epoch."""
        self.schedule.begin_epoch(epoch)

    def begin_step(self, step: int) -> None:
        """Set the learning rate of a step."""
        self.schedule.begin_step(step)

    def end_epoch(self, epoch: int, valid_losses: Sequence[float]) -> None:
        """Tell the schedule of the validation."""
        self.schedule.end_epoch(epoch, valid_losses[0])

    def learning_rates(self) -> list[float]:
        """Return the learning rate of each model."""
        return [float(self.optimizer.param_groups[0]["lr"])]

    def train(self, inputs: torch.Tensor, labels: torch.Tensor, share: Share, phases: Phases) -> Results:
        """Train one step.

        Args:
            inputs, labels: batch `[N, ...]` on the device.
            share: part of the batch that this process has.
            phases: clocks of the step's phases.

        Returns:
            A function for the mean loss `[]` of this process's samples and the counts of the metrics.
        """
        with phases.zero_grad:
            self.optimizer.zero_grad(set_to_none=self._experiment.set_to_none)
        parts = self._experiment.accumulate
        with phases.compute:
            each = [self._backward(part, labels, share, parts) for part in split(inputs, parts)]
            loss, outputs = each[0] if parts == 1 else (torch.stack(x).mean(0) for x in zip(*each, strict=True))
        with phases.update:
            self._update()
        with torch.no_grad():
            found = loss, self._experiment.metrics(outputs, labels)
        return lambda: found

    def _backward(self, inputs: Any, labels: torch.Tensor, share: Share, parts: int) -> tuple[torch.Tensor, ...]:
        """Add the gradients of one of `parts` parts of a batch to those that are there; return loss and outputs."""
        with self._autocast:
            outputs = self._call(inputs)
            loss = self._experiment.loss(outputs, labels)
        weighted = self._weighted(loss, share)
        self.scaler.scale(weighted / parts if parts > 1 else weighted).backward()
        return loss.detach(), outputs.detach()

    def _update(self) -> None:
        experiment = self._experiment
        if experiment.clip_norm is not None:
            self.scaler.unscale_(self.optimizer)
            trained = [each for group in self.optimizer.param_groups for each in group["params"]]
            torch.nn.utils.clip_grad_norm_(trained, experiment.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if experiment.after_step is not None:
            with torch.no_grad():
                experiment.after_step(self.model)

    def _weighted(self, loss: torch.Tensor, share: Share) -> torch.Tensor:
        """Scale the loss such that its mean over processes is the mean over the batch's samples."""
        mine = share.counted * self._world_size
        return loss if mine == share.whole else loss * (mine / share.whole)

    @torch.no_grad()
    def validate(self, inputs: torch.Tensor, labels: torch.Tensor) -> Results:
        """Return (mean loss, counts of the metrics), in the precision and the memory format of training."""
        with self._autocast:
            outputs = self.model(inputs)
            loss = self._experiment.loss(outputs, labels)
        found = loss, self._experiment.metrics(outputs, labels)
        return lambda: found

    def finite(self) -> list[bool]:
        """True if every parameter and buffer is finite, of each model."""
        values = [*self.model.parameters(), *self.model.buffers()]
        own = [each.to_local() if hasattr(each, "to_local") else each for each in values]  # of a shared one: its part
        checks = [each.isfinite().all() for each in own if each.is_floating_point()]
        return [bool(torch.stack(checks).all()) if checks else True]

    def state(self) -> dict[str, Any]:
        """Model, optimizer, scaler and schedule, as a checkpoint holds them; every process takes part."""
        parts: dict[str, Any] = {"model": self.model, "optimizer": self.optimizer, "scaler": self.scaler}
        parts["schedule"] = self.schedule
        found = {name: part.state_dict() for name, part in parts.items()}
        return whole(found) if self._experiment.shard else found

    def model_state(self, slot: int) -> dict[str, Any]:
        """Return the model, as its own file holds it; every process takes part."""
        found = self.model.state_dict()
        return {"model": whole(found) if self._experiment.shard else found}

    def load(self, state: dict[str, Any], losses: Mapping[int, Sequence[float]] | None = None) -> None:
        """Continue from :meth:`state`.

        Args:
            losses: validation losses of the epochs so far, by model: given where optimizer or schedule are others than
                those of the state. They keep their own values then, and the schedule comes to where it would be.
        """
        if self._experiment.shard:
            own = self.model.state_dict()
            parts = {name: as_shared(value, own[name]) for name, value in state["model"].items()}
            state = {**state, "model": parts, "optimizer": self._parts(state["optimizer"])}
        self.model.load_state_dict(state["model"])
        self.scaler.load_state_dict(state["scaler"])
        if losses is None:
            self.optimizer.load_state_dict(state["optimizer"])
            self.schedule.load_state_dict(state["schedule"])
            return
        load_rows(self.optimizer, state["optimizer"])
        catch_up(self.schedule, losses[0])

    def _parts(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state of the optimizer with this process's parts of what it keeps of each parameter."""
        of = [each for group in self.optimizer.param_groups for each in group["params"]]
        kept = state["state"].items()
        return {**state, "state": {i: {name: as_shared(x, of[i]) for name, x in own.items()} for i, own in kept}}

    def close(self) -> None:
        """Do nothing: steps of one model leave nothing running."""
