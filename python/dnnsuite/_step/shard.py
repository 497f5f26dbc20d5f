# SPDX-License-Identifier: MIT
"""Part of an array, as an array of its own that shares the storage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from .._fuse import has_gradient_hook, narrow
from .._fuse import views as views_of
from .._fuse import width as array_width
from ..errors import InvalidArgument
from ..optim import ArrayOptimizer, GradScaler
from .batches import with_parts
from .capture.facts import module_facts

_NOTHING = SimpleNamespace()
LossFunction = Callable[..., "torch.Tensor | tuple[torch.Tensor, torch.Tensor]"]
Vectors = Sequence[Mapping[str, torch.Tensor]]


@dataclass(frozen=True)
class StepOptions:
    """Options of a training step beside forward, backward and update."""

    scaler: GradScaler | torch.amp.GradScaler | None = None
    accumulate: int = 1


class Shard:
    """Models `start` to `start + length` of an array, with the matching part of its optimizer.

    Parameters, buffers, random streams and optimizer state are views of the array's, so training the shard trains the
    array. Gradients are the shard's own.
    """

    def __init__(
        self,
        array: torch.nn.Module,
        optimizer: ArrayOptimizer,
        loss_function: LossFunction,
        start: int,
        length: int,
        options: StepOptions | None = None,
    ) -> None:
        self.start, self.length = start, length
        self._optimizer, self._loss_function = optimizer, loss_function
        self._options = options or StepOptions()
        scaler = self._options.scaler
        self._scaler = scaler.narrow(start, length) if isinstance(scaler, GradScaler) else scaler
        self._whole = length == array_width(array)
        _refuse_backward_hooks(array)
        views = views_of(array, start, length)
        self.array = narrow(array, start, length, views)
        self._kept = _buffers_of(self.array)
        self._groups: list[dict[str, Any]] = []
        self._state: dict[torch.Tensor, dict[str, Any]] = {}
        for group in optimizer.param_groups:
            self._groups.append(self._narrow_group(group, views))
        self._places = {p: (p.data, name) for name, p in self.array.named_parameters()}
        self._vectors: Vectors = []  # the last hyper-parameters of all models, and this shard's part of them
        self._hyper: list[dict[str, torch.Tensor]] = []

    def _narrow_group(self, group: dict[str, Any], views: dict[int, torch.Tensor]) -> dict[str, Any]:
        params = []
        trained = [parameter for parameter in group["params"] if parameter.requires_grad]
        self._optimizer.init_state(group, trained, self._optimizer.state)
        for parameter in group["params"]:
            if id(parameter) not in views:
                raise InvalidArgument(
                    f"the optimizer holds a parameter {list(parameter.shape)} that the array does not: after an edit "
                    "of the array edit the optimizer too, then call refresh"
                )
            if has_gradient_hook(parameter):
                raise InvalidArgument(
                    f"a parameter {list(parameter.shape)} has a gradient hook, which StepRunner's parts of the array "
                    "would not call: take it away, or train without StepRunner"
                )
            view = views[id(parameter)]
            state = self._optimizer.state[parameter]
            self._state[view] = self._narrow_all(state)
            params.append(view)
        # One formula for all models, chosen by all: a step that looks for momentum itself could not be replayed.
        rule = self._optimizer.rule(group, group)
        return {**group, **self._narrow_all(group), "params": params, "rule": rule}

    def _narrow_all(self, values: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """View this shard's part of the tensors `[B, ...]` among `values`."""
        return {
            name: self.narrow(value)
            for name, value in values.items()
            if isinstance(value, torch.Tensor) and value.dim() > 0 and len(value) == self._optimizer.B
        }

    def state(self) -> list[torch.Tensor]:
        """List the tensors that a step changes: trained parameters, the optimizer's state and its counters."""
        tensors = [p for group in self._groups for p in group["params"] if p.requires_grad]
        tensors += [value for own in self._state.values() for value in own.values()]
        for group in self._groups:
            tensors += [
                value
                for name, value in group.items()
                if isinstance(value, torch.Tensor) and name in ("active", "skipped", "grad_norms")
            ]
        return tensors

    def roles(self) -> dict[str, torch.Tensor]:
        """Collect by role the tensors that stay from step to step: parameters, buffers, the optimizer's state."""
        found: dict[str, Any] = {f"module {name}": t for name, t in self.array.named_parameters()}
        found |= {f"module {name}": t for name, t in self.array.named_buffers()}
        for number, group in enumerate(self._groups):
            for place, parameter in enumerate(group["params"]):
                found |= {f"state {number} {place} {n}": t for n, t in self._state[parameter].items()}
            found |= {f"group {number} {name}": value for name, value in group.items()}
            for place, tensor in enumerate(self._optimizer.plan_tensors(group)):
                found[f"plan {number} {place}"] = tensor
        found |= {f"scaler {name}": value for name, value in vars(self._scaler or _NOTHING).items()}
        return {role: tensor for role, tensor in found.items() if isinstance(tensor, torch.Tensor)}

    def facts(self, era: object) -> tuple[Any, ...]:
        """List everything that this shard's code can see except tensors' values: Python values, and layouts."""
        flags = tuple(
            tuple(
                (name, value) for name, value in group.items() if isinstance(value, (bool, int, float, str))
            )
            for group in self._groups
        )
        updated = [[self._places[p][1] for p in group["params"]] for group in self._groups]  # in which order
        update = type(self._optimizer), self._optimizer.on_nan, flags, updated, self._options.accumulate
        code = module_facts(self.array, era), update
        layouts = tuple(
            (role, t.shape, t.stride(), t.dtype, t.requires_grad)
            for role, t in self.roles().items()
            if not role.startswith("plan")
        )
        return code, layouts

    def plans(self) -> list[tuple[str, list[int], list[int]] | None]:
        """Describe the optimizer's plan of each group: its rule, and the places of its parameters."""
        return [self._optimizer.planned(group) for group in self._groups]

    def prepare(self, plans: Sequence[tuple[str, list[int], list[int]] | None]) -> None:
        """Make the optimizer's plans, equal to another shard's."""
        for group, plan in zip(self._groups, plans, strict=True):
            if plan is not None:
                self._optimizer.prepare(group, self._state, *plan)

    def narrow(self, tensor: torch.Tensor) -> torch.Tensor:
        """View this shard's part `[length, ...]` of a tensor `[B, ...]`."""
        return tensor if self._whole else tensor.narrow(0, self.start, self.length)

    def part(self, batch: Any) -> Any:
        """View this shard's part of a batch. A list holds one tensor per model; a shard of it is one model."""
        if isinstance(batch, torch.Tensor):
            return self.narrow(batch)
        if isinstance(batch, list):
            return batch[self.start].unsqueeze(0)
        if type(batch) is tuple:
            return tuple(self.part(x) for x in batch)
        return with_parts(batch, self.part)

    def step(self, batch: tuple[Any, ...], vectors: Vectors) -> torch.Tensor:
        """Train one step on this shard's part of `batch`; return its losses `[length]`.

        `vectors` are the optimizer's hyper-parameters `[B]` of each group, as they were when the step was asked for.
        """
        return self.train(self.part(batch), self.hyper(vectors))

    def hyper(self, vectors: Vectors) -> list[dict[str, torch.Tensor]]:
        """View this shard's part of the hyper-parameters; usually they are those of the last step."""
        if vectors is not self._vectors:
            self._vectors = vectors
            self._hyper = [{name: self.narrow(value) for name, value in own.items()} for own in vectors]
        return self._hyper

    def train(self, batch: tuple[Any, ...], hyper: Sequence[Mapping[str, torch.Tensor]]) -> torch.Tensor:
        """Train one step on this shard's batch and hyper-parameters."""
        try:
            return self._trained(batch, hyper)
        except BaseException:
            self._put_buffers_back()
            raise
        finally:  # also after an error, or the next step would add to what this one left
            for group in self._groups:
                for parameter in group["params"]:
                    parameter.grad = None

    def _trained(self, batch: tuple[Any, ...], hyper: Sequence[Mapping[str, torch.Tensor]]) -> torch.Tensor:
        losses = self._backward(batch)
        self._check_parameters()
        self._settle_buffers()
        scaler = self._scaler
        if scaler is None:
            self._optimizer.step_groups(self._groups, self._state, hyper)
        elif isinstance(scaler, GradScaler):
            scaler.step_groups(self._optimizer, self._groups, self._state, hyper)
            scaler.update()
        else:
            # torch's asks for an optimizer only to see its gradients and to call or to skip its step.
            step = partial(self._optimizer.step_groups, self._groups, self._state, hyper)
            whole: Any = SimpleNamespace(param_groups=self._groups, step=step)
            scaler.step(whole)
            scaler.update()
        return losses

    def _check_parameters(self) -> None:
        """Refuse a forward that has moved parameters in memory, and put them back."""
        moved = []
        for parameter, (held, name) in self._places.items():
            if parameter.data_ptr() != held.data_ptr() or parameter.dtype != held.dtype:
                moved.append(f"{name} ({str(held.dtype)[6:]}, now {str(parameter.dtype)[6:]})")
                parameter.data = held
        if moved:
            raise InvalidArgument(
                f"the forward puts another tensor in the parameter {moved[0]}, and the array would keep the old one: "
                "change the models before fuse, or call the array once before its optimizer is made"
            )

    def _settle_buffers(self) -> None:
        """Copy a tensor that the forward put in a buffer's place into the buffer, a view of the array's."""
        for name, buffers, held, saved in self._kept:
            leaf = name.rpartition(".")[2]
            now = buffers.get(leaf)
            if now is held:
                continue
            if held is None or now is None or now.shape != held.shape or now.dtype != held.dtype:
                if not saved:
                    continue  # a cache
                raise InvalidArgument(
                    f"the forward gives the buffer {name} another shape or dtype, and the array would keep the old "
                    "one: call the array once on a batch of this size before StepRunner, or register the buffer with "
                    "persistent=False if it is only a cache"
                )
            held.copy_(now)
            buffers[leaf] = held

    def _put_buffers_back(self) -> None:
        """Put buffers back that the forward of a failed step has replaced."""
        for name, buffers, held, saved in self._kept:
            leaf = name.rpartition(".")[2]
            if saved and leaf in buffers:
                buffers[leaf] = held

    def _backward(self, batch: tuple[Any, ...]) -> torch.Tensor:
        """Compute the losses, and leave the gradients in the parameters; figures follow the losses."""
        parts = self._options.accumulate
        if parts == 1:
            losses, figures = self._checked(self._loss_function(self.array, *batch))
            self._scaled(losses).backward()
            return _beside(losses.detach(), figures)
        total: torch.Tensor | None = None
        for index in range(parts):
            found = self._loss_function(self.array, *_slice(batch, index, parts))
            losses, figures = self._checked(found)
            losses = losses / parts
            self._scaled(losses).backward()
            own = _beside(losses.detach(), figures)
            total = own if total is None else total + own
        assert total is not None
        return total

    def _checked(self, found: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Check that there is one loss, or one loss and figures, for each of this shard's models."""
        losses, figures = found, None
        if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], torch.Tensor):
            losses, figures = found
        if isinstance(losses, torch.Tensor) and losses.shape == (self.length,):
            return losses, self._checked_figures(figures)
        got = list(losses.shape) if isinstance(losses, torch.Tensor) else f"a {type(losses).__name__}"
        raise InvalidArgument(
            f"the loss function returned {got} for {self.length} models; StepRunner takes one loss per model, "
            f"[{self.length}]: use a loss of dnnsuite.nn.functional, or take the mean of each model's own, as in "
            "losses.flatten(1).mean(1)"
        )

    def _checked_figures(self, figures: torch.Tensor | None) -> torch.Tensor | None:
        if figures is None or (figures.dim() == 2 and len(figures) == self.length):
            return None if figures is None else figures.detach()
        raise InvalidArgument(
            f"the loss function returned figures {list(figures.shape)} beside the losses of {self.length} models: "
            f"they are [{self.length}, n], n numbers of each model"
        )

    def _scaled(self, losses: torch.Tensor) -> torch.Tensor:
        """Sum the losses, scaled, into the number to differentiate."""
        scaler = self._scaler
        if scaler is None:
            return losses.sum()
        return scaler.scale(losses).sum() if isinstance(scaler, GradScaler) else scaler.scale(losses.sum())


def _beside(losses: torch.Tensor, figures: torch.Tensor | None) -> torch.Tensor:
    """Put figures `[b, n]` beside losses `[b]`: `[b, 1 + n]`, in a dtype that holds both."""
    return losses if figures is None else torch.cat([losses[:, None], figures], 1)


def _refuse_backward_hooks(array: torch.nn.Module) -> None:
    """Refuse backward hooks of fused modules: they would see tensors of all models that report one model's shape."""
    for name, module in array.named_modules() if "_root" in array.__dict__ else ():
        if module is not array and (module._backward_hooks or module._backward_pre_hooks):
            raise InvalidArgument(
                f"{name} has a backward hook, which is not called inside of fused models: take it away, and look at "
                "array.parameters() or use Tensor.register_hook in the loss function instead"
            )


def _buffers_of(array: torch.nn.Module) -> list[tuple[str, dict[str, Any], torch.Tensor | None, bool]]:
    """List each buffer of the array: name, the dictionary that holds it, its tensor now, True if it is saved."""
    return [
        (f"{path}.{name}".lstrip("."), module._buffers, held, name not in module._non_persistent_buffers_set)
        for path, module in array.__dict__.get("_root", array).named_modules()
        for name, held in module._buffers.items()
    ]


def _slice(batch: Any, index: int, parts: int) -> Any:
    """Take part `index` of `parts` equal parts of the samples, dimension 1 of every tensor."""
    if isinstance(batch, torch.Tensor):
        if batch.dim() < 2 or batch.size(1) % parts:
            raise InvalidArgument(
                f"accumulate={parts} cuts dimension 1 of a batch in equal parts; a tensor of it is {list(batch.shape)}"
            )
        size = batch.size(1) // parts
        return batch.narrow(1, index * size, size)
    return with_parts(batch, lambda part: _slice(part, index, parts))
