# SPDX-License-Identifier: MIT
"""One step of an experiment on one device: forward, loss, backward, update; and the forward of validation.

Its parts are timed and shown to NVIDIA's tools in one epoch, without cost in the others. Losses and counts are summed
over batches, and fetched from the device now and then.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .._files import write_text
from .._seeds import seed_all
from ..jobs.distributed import as_shared, parallel, sharded, whole
from ..jobs.model_parts import split
from ..profiler import nvtx, window
from ..timing import Spans
from .loading import Batch, Share

if TYPE_CHECKING:
    from .experiment import Experiment
    from .processes import Processes

PHASES = ("data", "zero_grad", "forward/loss/backward", "optimizer.step")
PHASES_FILE = "phases.csv"

_NOTHING = nullcontext()
_SPANS_PER_STEP = 8


class Phases:
    """Ranges PROFILE > epoch N > iteration i > the four `PHASES`, with the names of SC20's tutorial.

    On a GPU the times are those of the device, by events: nothing is synchronised within an iteration.

    Attributes:
        data, zero_grad, compute, update: context managers around each part; they do nothing but in a profiled epoch.

    Args:
        steps: of the profiled epoch; 0 if none is profiled.
        cuda: time on the device.
    """

    def __init__(self, steps: int, cuda: bool = False) -> None:
        self._spans: Spans | None = None
        if steps:
            pairs = _SPANS_PER_STEP * steps if cuda else 0
            self._spans = Spans(_SPANS_PER_STEP * steps, nvtx=nvtx.available(), cuda_pairs=pairs)
        self._on = False
        self._set()

    def _set(self) -> None:
        of = [self._spans.span(name) if self._on and self._spans is not None else _NOTHING for name in PHASES]
        self.data: Any = of[0]
        self.zero_grad: Any = of[1]
        self.compute: Any = of[2]
        self.update: Any = of[3]

    @contextmanager
    def profiled(self, epoch: int, on: bool) -> Iterator[None]:
        """Context manager: one epoch (from 1), which tools see if `on`."""
        if not on or self._spans is None:
            yield
            return
        with ExitStack() as ranges:
            ranges.enter_context(window.Window())
            ranges.enter_context(_range("PROFILE"))
            ranges.enter_context(_range(f"epoch {epoch}"))
            self._on = True
            self._set()
            try:
                yield
            finally:
                self._on = False
                self._set()

    @property
    def on(self) -> bool:
        """True within a profiled epoch."""
        return self._on

    def iteration(self, i: int) -> Any:
        """Context manager: the range of one iteration."""
        if not self._on or self._spans is None:
            return _NOTHING
        self._spans.step = i
        return _range(f"iteration {i}")

    def seconds(self) -> dict[str, list[float]]:
        """Seconds of each phase in each profiled iteration; empty where none was profiled."""
        if self._spans is None or not len(self._spans):
            return {}
        columns = self._spans.columns()
        took_ns = columns.get("gpu_ns", columns["t1_ns"] - columns["t0_ns"])
        return {name: (took_ns[columns["name"] == name] * 1e-9).tolist() for name in PHASES}

    def save(self, folder: Path) -> None:
        """Write `phases.csv`: a row per phase and iteration, in milliseconds."""
        rows = [
            f"{name},{i},{took * 1e3:.6g}" for name, all_s in self.seconds().items() for i, took in enumerate(all_s)
        ]
        if rows:
            write_text(folder / PHASES_FILE, "\n".join(["phase,iteration,ms", *rows, ""]))


def _range(name: str) -> Any:
    return nvtx.range(name) if nvtx.available() else _NOTHING


# Mean losses `[]` and counts `[n]` of a batch; of an array `[B]` and `[B, n]`. May wait for the step.
Results = Callable[[], tuple[torch.Tensor, torch.Tensor]]

_UNDER_WAY = 2  # steps that need not be done yet when another one is asked for


class Tally:
    """Sum of losses, counts of the metrics and number of samples of one process, for each model.

    `add` only keeps tensors; :meth:`collect` fetches them, which waits for the device.

    Attributes:
        totals: sums for each model: loss, samples, counts.

    Args:
        names: names of the metrics.
        models: trained at once.
    """

    def __init__(self, names: tuple[str, ...], models: int = 1) -> None:
        self._names = names
        self.totals = [[0.0] * (2 + len(names)) for _ in range(models)]
        self._asked: deque[Results] = deque()
        self._losses: list[torch.Tensor] = []
        self._counts: list[torch.Tensor] = []
        self._samples: list[int] = []

    def __len__(self) -> int:
        """Batches that were not collected yet."""
        return len(self._samples)

    def add(self, results: Results, samples: int) -> None:
        """Take in the results of a batch of `samples` samples."""
        self._asked.append(results)
        self._samples.append(samples)
        if len(self._asked) > _UNDER_WAY:
            self._take()

    def _take(self) -> None:
        losses, counts = self._asked.popleft()()
        self._losses.append(losses)
        self._counts.append(counts)

    def collect(self) -> list[float]:
        """Add the kept batches to `totals`; return, by model, its first batch whose loss is not finite,
        else infinity."""
        first = [math.inf] * len(self.totals)
        while self._asked:
            self._take()
        if not self._losses:
            return first
        shape = len(self._losses), len(self.totals)
        losses = torch.stack(self._losses).view(shape).tolist()
        counts = torch.stack(self._counts).view(*shape, len(self._names)).tolist()
        for i, samples in enumerate(self._samples):
            for model, totals in enumerate(self.totals):
                if not math.isfinite(losses[i][model]):
                    first[model] = min(first[model], i)
                if samples:
                    _add(totals, losses[i][model] * samples, samples, counts[i][model])
        self._losses.clear()
        self._counts.clear()
        self._samples.clear()
        return first

    def since(self, before: Sequence[Sequence[float]]) -> dict[str, float]:
        """Means of the first model over the batches since its totals were `before`."""
        return self.means([now - then for now, then in zip(self.totals[0], before[0], strict=True)])

    def keep(self, slots: Sequence[int]) -> None:
        """Continue with these models only; everything must be collected."""
        self.totals = [self.totals[slot] for slot in slots]

    def means(self, totals: Sequence[float]) -> dict[str, float]:
        """Mean loss and metrics of one model's totals over all processes."""
        samples = totals[1] or math.nan
        return {"loss": totals[0] / samples} | {
            name: count / samples for name, count in zip(self._names, totals[2:], strict=True)
        }


def _add(totals: list[float], loss: float, samples: int, counts: Sequence[float]) -> None:
    totals[0] += loss
    totals[1] += samples
    for place, count in enumerate(counts, 2):
        totals[place] += count


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
