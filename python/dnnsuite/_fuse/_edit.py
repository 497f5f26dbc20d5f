# SPDX-License-Identifier: MIT
"""Changes which models an array has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..errors import InvalidArgument
from ..nn._base import ArrayModule
from ..nn._dropout import FUNCTION_STREAM as STREAM
from ._parts import Parts
from ._shell import Shell
from ._tree import Fusion


class Edit:
    """Slot k of `array` becomes what slot `slots[k]` holds, or `models[k]` where that is None.

    Everything that can be refused is looked at first. Parameters stay the same objects with other data, so an
    optimizer's references hold; `companions` have `select(slots, **fresh)`.
    """

    def __init__(
        self,
        array: Any,
        slots: Sequence[int | None],
        models: dict[int, torch.nn.Module],
        companions: Sequence[Any],
        fresh: dict[str, Any],
    ) -> None:
        self.array, self.slots, self.companions, self.fresh = array, list(slots), companions, fresh
        for companion in companions:
            if not hasattr(companion, "select"):
                raise InvalidArgument(
                    f"{type(companion).__name__} cannot follow the array: it has no select(slots); give "
                    "dnnsuite.optim's optimizers and schedulers"
                )
        taken = {name for companion in companions for name in _accepted(companion, fresh)}
        if taken != set(fresh):
            raise InvalidArgument(
                f"no optimizer or scheduler given takes {', '.join(sorted(set(fresh) - taken))}"
            )
        self.new: dict[int, Any] = {}
        for slot, model in models.items():
            self.new[slot] = self._one(model)

    def _one(self, model: torch.nn.Module) -> Any:
        """The new model as a tree of one, after comparing it with the array's."""
        like = self.array[0].train(model.training)
        device = next((p.device for p in self.array.parameters()), None)
        tree = Fusion([model if device is None else model.to(device)]).tree()
        try:
            Fusion([like, model]).tree()
        except InvalidArgument as error:
            raise InvalidArgument(
                str(error).replace("models 0 and 1", "the array and the new model")
            ) from None
        return tree

    @torch.no_grad()
    def carry_out(self) -> None:
        """Makes all new tensors, puts them in place, and lets the companions follow; an error undoes it."""
        array = self.array
        before = _Before(array)
        new = {slot: dict(_state(tree)) for slot, tree in self.new.items()}
        made: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}
        places = _state_with_kind(array._root)
        for (key, tensor), _ in places:
            if id(tensor) not in made:
                fresh = {slot: held.get(key) for slot, held in new.items()}
                made[id(tensor)] = self._gathered(key, tensor, fresh), self._gradient(tensor)
        for (key, tensor), kind in places:
            value, grad = made[id(tensor)]
            if kind == "parameter":
                tensor.grad = None
                tensor.data = value
                tensor.grad = grad
            else:
                path, _, name = key.rpartition(".")
                array._root.get_submodule(path)._buffers[name] = value
        self._follow_in_modules()
        try:
            for companion in self.companions:
                companion.select(self.slots, **_accepted(companion, self.fresh))
        except Exception:
            before.put_back()
            raise

    def _gradient(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The gradient of the models that stay; none if there are new ones, which have no gradient yet."""
        if tensor.grad is None or None in self.slots:
            return None
        return tensor.grad[torch.tensor(self.slots, device=tensor.device)]

    def _follow_in_modules(self) -> None:
        for path, module in list(self.array._root.named_modules()):
            if isinstance(module, ArrayModule):
                self._lists(module, path)
            elif isinstance(module, Shell) and module._parts is not None:
                module._parts = self._parts(module, path) if module._parts.own else None
            if "B" in module.__dict__:
                module.B = len(self.slots)
        self.array.B = len(self.slots)

    def _gathered(self, key: str, tensor: torch.Tensor, fresh: dict[int, Any]) -> torch.Tensor:
        if all(slot is not None for slot in self.slots):
            return tensor.data[torch.tensor(self.slots, device=tensor.device)]
        rows = []
        for slot, source in enumerate(self.slots):
            if source is not None:
                rows.append(tensor.data[source])
                continue
            made = fresh[slot]
            if made is None and key == STREAM:
                made = torch.randint(-(1 << 62), 1 << 62, (1, 2), dtype=torch.int64)
                made[0, 1] = 0
            rows.append(made[0].to(tensor.device, tensor.dtype))
        return torch.stack(rows)

    def _lists(self, module: ArrayModule, path: str) -> None:
        for name in module.per_model_lists:
            held = getattr(module, name)
            fresh = {slot: getattr(tree.get_submodule(path), name)[0] for slot, tree in self.new.items()}
            setattr(module, name, [fresh[k] if s is None else held[s] for k, s in enumerate(self.slots)])

    def _parts(self, module: Shell, path: str) -> Parts:
        held = module._parts.trees
        trees = [self.new[k].get_submodule(path) if s is None else held[s] for k, s in enumerate(self.slots)]
        return Parts(module, trees)


class _Before:
    """What an edit changes, to put it back."""

    def __init__(self, array: Any) -> None:
        self.array, self.B = array, array.B
        self.tensors = [(p, p.data, p.grad) for p in array.parameters()]
        self.modules = [(m, dict(m._buffers), dict(m.__dict__)) for m in array._root.modules()]

    def put_back(self) -> None:
        for parameter, data, grad in self.tensors:
            parameter.grad = None
            parameter.data = data
            parameter.grad = grad
        for module, buffers, attributes in self.modules:
            module._buffers.update(buffers)
            module.__dict__.update(attributes)
        self.array.B = self.B


def _state(tree: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [pair for pair, _ in _state_with_kind(tree)]


def _state_with_kind(tree: torch.nn.Module) -> list[tuple[tuple[str, torch.Tensor], str]]:
    """Every tensor with a dimension for the models, by name."""
    found: list[tuple[tuple[str, torch.Tensor], str]] = []
    for path, module in tree.named_modules():
        shared = getattr(module, "shared_buffers", ())
        for name, value in module._parameters.items():
            if value is not None:
                found.append(((f"{path}.{name}".lstrip("."), value), "parameter"))
        for name, value in module._buffers.items():
            if value is not None and name not in shared:
                found.append(((f"{path}.{name}".lstrip("."), value), "buffer"))
    return found


def _accepted(companion: Any, fresh: dict[str, Any]) -> dict[str, Any]:
    """Those of the new models' values that are the companion's."""
    names = {*getattr(companion, "per_model", fresh), *getattr(companion, "pairs", ()), "max_grad_norm"}
    return {name: value for name, value in fresh.items() if name in names}
