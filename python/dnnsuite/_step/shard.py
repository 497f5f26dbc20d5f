# SPDX-License-Identifier: MIT
"""Part of an array, as an array of its own that shares the storage.

A shard has names for the tensors that stay from step to step (`roles`) and describes all else that its steps depend on
(`facts`): by these a recording of one shard is found for another, and bound to its tensors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from .._fuse import has_backward_hook, in_step, layers_set, narrow, notes, take_notes
from .._fuse import views as views_of
from .._fuse import width as array_width
from .._under_way import whole_array_used
from ..errors import InvalidArgument
from .arguments import with_parts
from .capture.guards import module_facts
from .part import Plans, ShardPart, StepPart, Vectors, of_all_parts


class Shard:
    """Models `start` to `start + length` of an array, with the matching part of its optimizers.

    Parameters, buffers, random streams and optimizer state are views of the array's, so training the shard trains the
    array. Gradients are the shard's own.

    Args:
        parts: parts of a step, taken in order; each holds the parameters of the others.
        loop: run the models in a loop, or all at once; None leaves it to the array's measurement.
        itself: compute with the array and not with a copy of its modules, for steps that run Python: what these read
            and leave in Python is the array's then. The shard holds all models.
    """

    def __init__(
        self,
        array: torch.nn.Module,
        parts: Sequence[StepPart],
        start: int,
        length: int,
        loop: bool | None = False,
        itself: bool = False,
    ) -> None:
        self.start, self.length, self.whole = start, length, array
        self.is_whole, self._loop, self._itself = length == array_width(array), loop, itself
        _refuse_backward_hooks(array)
        views: dict[int, torch.Tensor]
        views = {id(p): p for p in array.parameters()} if itself else views_of(array, start, length)
        self.array = array if itself else narrow(array, start, length, views)
        self._kept = _buffers_of(self.array)
        self._parts = [ShardPart(part, views, start, length) for part in parts]
        if len(parts) > 1:
            parameters = [view for view in views.values() if isinstance(view, torch.nn.Parameter)]
            for part in self._parts:
                part.hold_others(parameters)
        self._pairs = [(p, views[id(p)]) for p in array.parameters()]
        self._places = {p: (p.data, name) for name, p in self.array.named_parameters()}
        self._overlaps = self._memory_shared()
        self._vectors: Vectors = []  # the last hyper-parameters of all models, and this shard's part of them
        self._hyper: list[dict[str, torch.Tensor]] = []

    def take_memory(self) -> bool:
        """Use the memory that `.data = ...` has given the array's parameters. Return False where one has another layout
        than before, or has come to share memory with another parameter or buffer."""
        for parameter, view in self._pairs:
            (before, name), now = self._places[view], self.narrow(parameter.data)
            if _layout(now) != _layout(before):
                return False
            if now.data_ptr() == before.data_ptr():
                continue
            if view is not parameter:
                view.data = now
            self._places[view] = view.data, name
        return self._memory_shared() == self._overlaps and all(part.follow_memory() for part in self._parts)

    def _memory_shared(self) -> list[int]:
        """Tell which parameters and buffers lie in the same memory: of each, the place of the first that does."""
        first: dict[int, int] = {}
        tensors = (*self._places, *(held for _, _, held, _ in self._kept if held is not None))
        return [first.setdefault(t.untyped_storage()._cdata, place) for place, t in enumerate(tensors)]

    def state(self) -> dict[str, torch.Tensor]:
        """Collect the tensors that a step changes: trained parameters, the optimizers' state and their counters."""
        names = {parameter: name for parameter, (_, name) in self._places.items()}
        if len(self._parts) == 1:
            return self._parts[0].state(names)
        each = enumerate(self._parts)
        return {f"{name} in part {i}": t for i, part in each for name, t in part.state(names).items()}

    def roles(self) -> dict[str, torch.Tensor]:
        """Collect by role the tensors that stay from step to step: parameters, buffers, the optimizers' state."""
        found: dict[str, Any] = {f"module {name}": t for name, t in self.array.named_parameters()}
        found |= {f"module {name}": t for name, t in self.array.named_buffers()}
        for number, part in enumerate(self._parts):
            found |= {f"{role} of {number}": value for role, value in part.roles().items()}
        return {role: tensor for role, tensor in found.items() if isinstance(tensor, torch.Tensor)}

    def facts(self, era: object, without: Collection[tuple[int, str]] = ()) -> tuple[Any, ...]:
        """List everything that this shard's code can see except tensors' values: Python values, and layouts.

        Args:
            era: replaces values that cannot be compared.
            without: (number of the module, name) of attributes that are left out.
        """
        names = {parameter: name for parameter, (_, name) in self._places.items()}
        code = module_facts(self.array, era, without), *(part.facts(names) for part in self._parts)
        layouts = tuple(
            (role, t.shape, t.stride(), t.dtype, t.requires_grad)
            for role, t in self.roles().items()
            if not role.startswith("plan")
        )
        return code, (*layouts, tuple(self._overlaps))  # a recording knows tensors by their memory

    def layers_set(self) -> list[Any]:
        """List what the models' code has set in layers: a recording holds it as constants."""
        return layers_set(self.array)

    def plans(self) -> Plans:
        """Describe the optimizers' plan of each group: its rule, and the places of its parameters."""
        return [plan for part in self._parts for plan in part.plans()]

    def prepare(self, plans: Plans) -> None:
        """Make the optimizers' plans as another shard has them."""
        for part, own in self._each_parts(plans):
            part.prepare(own)

    def _each_parts(self, of_groups: Sequence[Any]) -> Iterator[tuple[ShardPart, Sequence[Any]]]:
        """Pair each part with what belongs to its groups."""
        begin = 0
        for part in self._parts:
            yield part, of_groups[begin : begin + len(part)]
            begin += len(part)

    def give_back(self, others: Sequence[Shard]) -> None:
        """Give the optimizers the state that updates have made in this shard and in the `others` after it."""
        for number, part in enumerate(self._parts):
            part.give_back([other._parts[number] for other in others])

    def notes(self) -> list[Any]:
        """List what the models' code has told about itself while it ran."""
        return notes(self.array)

    def take_notes(self, known: Sequence[Any]) -> None:
        """Know the same of models whose code does not run, because the recording of equal ones is replayed."""
        take_notes(self.array, known)

    def narrow(self, tensor: torch.Tensor) -> torch.Tensor:
        """View this shard's part `[length, ...]` of a tensor `[B, ...]`."""
        return tensor if self.is_whole else tensor.narrow(0, self.start, self.length)

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
            with in_step(self.array, self._loop), self._without_gradients():
                return of_all_parts([self._trained(part, batch, own) for part, own in self._each_parts(hyper)])
        except BaseException:
            self._put_buffers_back()
            raise

    @contextmanager
    def _without_gradients(self) -> Iterator[None]:
        """Context manager: parameters of the array itself have no gradients from outside of the step, and those that
        they had afterwards."""
        held = [(parameter, parameter.grad) for parameter in self._places] if self._itself else []
        for parameter, _ in held:
            parameter.grad = None
        try:
            yield
        finally:
            for parameter, grad in held:
                parameter.grad = grad

    def _trained(
        self, part: ShardPart, batch: tuple[Any, ...], hyper: Sequence[Mapping[str, torch.Tensor]]
    ) -> torch.Tensor:
        try:
            before = [] if self._itself else part.gradients_of_all()
            with part.others_held():
                losses = part.backward(self.array, batch)
                if part.optimizer.passes > 1:
                    part.second_pass(self.array, batch, hyper)
            if not self._itself and part.gradients_of_all() != before:
                raise InvalidArgument(whole_array_used())
            self._check_parameters()
            self._settle_buffers()
            part.update(hyper)
            return losses
        finally:  # also after an error
            part.forget_gradients()

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
            held.copy_(now.detach())
            buffers[leaf] = held

    def _put_buffers_back(self) -> None:
        """Put buffers back that the forward of a failed step has replaced."""
        for name, buffers, held, saved in self._kept:
            leaf = name.rpartition(".")[2]
            if saved and leaf in buffers:
                buffers[leaf] = held


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.device, tensor.layout, tensor.shape, tensor.stride()


def _refuse_backward_hooks(array: torch.nn.Module) -> None:
    """Refuse backward hooks of fused modules: they would see tensors of all models that report one model's shape."""
    for name, module in array.named_modules() if "_root" in array.__dict__ else ():
        if module is not array and has_backward_hook(module):
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
