# SPDX-License-Identifier: MIT
"""Comparison of a declared workload's array with B plain models, trained from the same declaration.

All begin with the same weights. Then each step of the array is compared with that of a plain model which starts it from
the array's state, so that rounding cannot grow from step to step, and late steps too are compared closely. A plain
model takes over parameters, buffers and optimizer state, but has its own hyperparameters and schedule. Rounding errors
are larger where a ReLU flips, or Adam divides a gradient of nearly zero by itself. A difference above its bound is
compared with controls: the plain step in float64, then plain steps from weights changed by a rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ._job import JobConfig
from ._separate import MaskStream, share_masks

if TYPE_CHECKING:
    from .declared_job import DeclaredJob

Tensors = dict[str, torch.Tensor]

_EPOCH_STEPS = 5  # after which the schedules go on
_STORED = {torch.float32: 6e-8, torch.float64: 2e-16}  # relative rounding of a tensor that is kept
# Roundings that are tried before a difference counts: a ReLU that flipped in the array flips in some of them, too.
_ROUNDINGS = 32
_SIZES = (1, 2, 4, 8)  # of the least one: the array's rounding has come through all layers before
_METHOD = "torch.nn layers and torch.optim.{}, one model at a time, same batches and dropout masks, from equal states"


class Snapshot(NamedTuple):
    """Tensors of one model by the names of the plain one, states of its optimizers by parameter, and its last loss."""

    tensors: Tensors
    optimizers: list[dict[int, Tensors]]
    loss: float = float("nan")


class Bounds(NamedTuple):
    """Allowed distance of one step: `step` relative to the change, and `control` times the control's distance.

    `rounding` is the relative distance of weights of which an array may see one and a plain model the other.
    """

    step: float
    control: float
    rounding: float


_BOUNDS = {
    "fp64": Bounds(step=1e-9, control=30.0, rounding=3e-16),
    "fp32": Bounds(step=1e-4, control=30.0, rounding=2e-7),
    "amp": Bounds(step=0.1, control=10.0, rounding=2e-3),
    "bf16": Bounds(step=0.1, control=10.0, rounding=2e-3),
}


class Difference(NamedTuple):
    """Distance of one quantity of a model after a step, relative to its change, and its bound."""

    of: str
    error: float
    allowed: float
    step: int = 0
    model: int = 0

    @property
    def excess(self) -> float:
        """Distance in units of the bound; infinite for NaN."""
        return self.error / self.allowed if self.error == self.error else float("inf")


class Alone(NamedTuple):
    """Job of one plain model, and the dropout masks that it draws."""

    job: DeclaredJob
    masks: Sequence[MaskStream]

    @property
    def place(self) -> tuple[int, list[int]]:
        """Position of the job in its data, and of each of its dropout masks."""
        return self.job.iteration, [mask.position for mask in self.masks]

    def go_to(self, place: tuple[int, list[int]]) -> None:
        """Make the same draws again from a place on."""
        self.job.iteration = place[0]
        for mask, position in zip(self.masks, place[1], strict=True):
            mask.position = position


def check(kind: type[DeclaredJob], config: JobConfig, steps: int) -> dict[str, Any]:
    """Train `config.B` models as one array, each step beside plain models, and return the largest difference.

    Seeds, data, hyperparameters and dropout masks are the same; the schedules advance every few steps. Passed if the
    weights are equal at the start, and the loss, every tensor's change and the optimizer's state of each step are
    within bounds of those of a plain model that starts the step from the array's state. The first step that fails is
    the last.
    """
    bounds, fused, plain = _BOUNDS[config.precision], [], []
    with ExitStack() as opened:
        job = opened.enter_context(closing(kind(config)))
        job.setup()
        followers = [_Follower(job, i, bounds, opened) for i in range(config.B)]
        found = [follower.start() for follower in followers]
        for step in range(1, steps + 1):
            job.step()
            job.synchronize()
            fused.append(job.losses())
            found += [follower.compare()._replace(step=step) for follower in followers]
            plain.append([follower.loss for follower in followers])
            if max(each.excess for each in found) > 1.0:
                break
            if step % _EPOCH_STEPS == 0:
                job.end_epoch()
                for follower in followers:
                    follower.end_epoch()
            for follower in followers:
                follower.look()
    worst = max(found, key=lambda each: each.excess)
    apart = [
        abs(a - b) / max(abs(b), 1e-12) for pair in zip(fused, plain, strict=True) for a, b in zip(*pair, strict=True)
    ]
    return {
        "passed": worst.excess <= 1.0,
        **({"message": _sentence(worst)} if worst.excess > 1.0 else {}),
        "tolerance": bounds.step,
        "max_relative_error": max(apart, key=lambda each: (each != each, each)),  # NaN, if one is
        "worst_step": worst._asdict(),
        "steps": steps,
        "models": config.B,
        "losses_fused": fused,
        "losses_separate": plain,
        "method": _METHOD.format(" and ".join(dict.fromkeys(x.optimizer.name for x in kind.workload.groups()))),
    }


def _sentence(worst: Difference) -> str:
    where = f"in step {worst.step}, started from the same state" if worst.step else "before the first step"
    return f"the {worst.of} of model {worst.model} differs by {worst.error:.2g} {where}; allowed is {worst.allowed:.2g}"


class _Follower:
    """Model `index` of an array as a plain job and as one in float64; each makes the array's steps from its state."""

    def __init__(self, array: DeclaredJob, index: int, bounds: Bounds, opened: ExitStack) -> None:
        self._array, self._index, self._bounds = array, index, bounds
        self._plain, self._exact = (self._alone(each, opened) for each in (array.config.precision, "fp64"))
        self.loss = float("nan")  # of the last step
        self.look()

    def _alone(self, precision: str, opened: ExitStack) -> Alone:
        """Make a plain job of the model, which is closed with `opened`.

        It has one thread: for so small a model, threads that wait for each other on a busy machine cost more than they
        bring.
        """
        config, index = self._array.config, self._index
        hyper = {name: [values[index]] for name, values in self._array.hyper.items()}
        own = replace(config, B=0, seed=config.seed + index, hyper=hyper, precision=precision, threads=1)
        job = opened.enter_context(closing(type(self._array)(own)))
        job.batches = self._array.batches
        job.setup()
        return Alone(job, share_masks(job.trainee, self._array.trainee, own.seed))

    def start(self) -> Difference:
        """Return the largest difference of the array's weights from the plain model's, before any step."""
        own = self._plain.job.trainee.state_dict()
        found = [
            _difference(f"start of {name.removeprefix('model.')}", None, x, own[name], (), Bounds(1e-12, 0.0, 0.0))
            for name, x in self._before.tensors.items()
        ]
        return max(found, key=lambda each: each.excess)._replace(model=self._index)

    def look(self) -> None:
        """Take over the array's state before its step."""
        self._before = self._now()

    def compare(self) -> Difference:
        """Make the step that the array has just made; return the largest difference in units of its bound."""
        found, now = self._now(), self._plain.place
        plain = _advanced(self._plain.job, self._before)
        self.loss, making = plain.loss, self._controls(now)
        # A schedule goes on after its optimizer's first step, so the control makes that one in any case.
        controls: list[Snapshot] = [] if self._exact.job.iteration else [next(making)]
        while True:
            differences = _differences(self._before, found, plain, controls, self._bounds)
            worst = max(differences, key=lambda each: each.excess)
            if worst.excess <= 1.0 or (control := next(making, None)) is None:
                return worst._replace(model=self._index)
            controls.append(control)

    def _controls(self, now: tuple[int, list[int]]) -> Iterator[Snapshot]:
        """Yield the plain step in float64, then plain steps from weights that are a rounding away."""
        self._exact.go_to(now)
        yield _advanced(self._exact.job, self._before)
        for attempt in range(_ROUNDINGS):
            size = self._bounds.rounding * _SIZES[attempt % len(_SIZES)]
            start = _rounded(self._before, self._plain.job, size, attempt)
            self._plain.go_to(now)
            yield _moved(_advanced(self._plain.job, start), start, self._before)

    def end_epoch(self) -> None:
        for alone in (self._plain, self._exact):
            alone.job.end_epoch()

    def _now(self) -> Snapshot:
        """State of the model in the array."""
        array, like = self._array, self._plain.job
        now = array.trainee.state_dict()
        tensors = {name: now[name][self._index].clone() for name in like.trainee.state_dict()}
        optimizers = []
        for mine, its in zip(array.optimizers, like.optimizers, strict=True):
            params = [p for group in its.param_groups for p in group["params"]]
            optimizers.append(_tensors(mine.to_model(self._index, params)))
        losses = array.losses()
        return Snapshot(tensors, optimizers, losses[self._index] if losses else float("nan"))


def _advanced(job: DeclaredJob, start: Snapshot) -> Snapshot:
    """State of a plain job after a step from `start`, with hyperparameters and schedule of its own."""
    job.trainee.load_state_dict(start.tensors)
    for optimizer, found in zip(job.optimizers, start.optimizers, strict=True):
        now = optimizer.state_dict()
        kept = {place: _used(found.get(place, {}), values) for place, values in now["state"].items()}
        optimizer.load_state_dict({**now, "state": kept})
    job.step()
    tensors = {name: x.detach().clone() for name, x in job.trainee.state_dict().items()}
    return Snapshot(tensors, [_tensors(optimizer) for optimizer in job.optimizers], job.losses()[0])


def _used(found: Tensors, own: Mapping[str, Any]) -> dict[str, Any]:
    """Tensors that torch's optimizer has too; SGD without momentum keeps none."""
    return {
        name: found[name].clone() if name in found else value  # load_state_dict of torch does not copy
        for name, value in own.items()
    }


def _tensors(optimizer: torch.optim.Optimizer) -> dict[int, Tensors]:
    return {
        place: {name: x.clone() for name, x in values.items() if isinstance(x, torch.Tensor)}
        for place, values in optimizer.state_dict()["state"].items()
    }


def _rounded(state: Snapshot, job: DeclaredJob, rounding: float, seed: int) -> Snapshot:
    """Change the weights of `state` by a rounding."""
    generator = torch.Generator().manual_seed(seed)
    tensors = dict(state.tensors)
    for name, _ in job.trainee.named_parameters():
        x = tensors[name]
        noise = torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.device)
        tensors[name] = (x * (1 + rounding * noise)).to(x.dtype)
    return state._replace(tensors=tensors)


def _moved(after: Snapshot, start: Snapshot, before: Snapshot) -> Snapshot:
    """State `after` a step from `start`, as if it had begun at `before`."""
    tensors = {
        name: x.double() - (start.tensors[name].double() - before.tensors[name].double())
        for name, x in after.tensors.items()
    }
    return after._replace(tensors=tensors)


def _differences(
    before: Snapshot, found: Snapshot, plain: Snapshot, controls: Sequence[Snapshot], bounds: Bounds
) -> Iterator[Difference]:
    """Compare the loss, each tensor's change, and each state of the optimizers after a step from `before`."""
    loss, its, *others = (torch.tensor(x.loss, dtype=torch.float64) for x in (found, plain, *controls))
    yield _difference("loss", None, loss, its, others, bounds)
    for name, was in before.tensors.items():
        others = [x.tensors[name] for x in controls]
        of = f"update of {name.removeprefix('model.')}"
        yield _difference(of, was, found.tensors[name], plain.tensors[name], others, bounds)
    for number, states in enumerate(plain.optimizers):
        for place, values in states.items():
            for key, value in values.items():
                mine = found.optimizers[number].get(place, {}).get(key, torch.full_like(value, torch.nan))
                others = [x.optimizers[number][place][key] for x in controls]
                yield _difference(f"{key} of parameter {place}", None, mine, value, others, bounds)


def _difference(
    of: str,
    was: torch.Tensor | None,
    found: torch.Tensor,
    plain: torch.Tensor,
    controls: Sequence[torch.Tensor],
    bounds: Bounds,
) -> Difference:
    """Distance in the norm of all elements, relative to the change since `was`, or to the size."""
    if torch.equal(found, plain):  # masks of infinities, too, which have no distance
        return Difference(of, 0.0, bounds.step)
    stored = _STORED.get(plain.dtype, 0.0) * float(plain.double().norm())
    found, plain = found.double(), plain.double()
    size = float((plain if was is None else plain - was.double()).norm()) or 1e-30
    control = max((float((plain - x.double()).norm()) for x in controls), default=0.0)
    error = float((found - plain).norm())
    return Difference(of, error / size, bounds.step + (bounds.control * control + stored) / size)
