# SPDX-License-Identifier: MIT
"""Edits of an array: models dropped, added, replaced, cloned."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from .._state import keep_contents, keep_names
from ..errors import InvalidArgument
from ..nn.array_module import ArrayModule
from ..nn.random_streams import FUNCTION_STREAM
from ..nn.sharing import equal_values, held_once, spread
from ..ops.array_layers import SavedRows, changed_slots, has_rows
from ..ops.memory_order import memory_order
from .build import Fusion
from .left_tensors import choose_models, keeps_more, left_in, narrow_settings, settings_of
from .new_models import EditedAttributes, remember, those_that_fit
from .single_model import model_of, set_width, tensors_of_each

_Kept = tuple[str, torch.Tensor, str]  # name, tensor, kind
_Row = tuple[torch.Tensor, int, torch.Tensor, str]  # tensor, slot, its new values, kind

EDITION = "_fused_edition"  # attribute of an array: how often its models were exchanged


def edition_of(array: torch.nn.Module) -> int:
    """Count the edits of an array: what was taken of its models in an earlier edition is not theirs any more."""
    return int(array.__dict__.get(EDITION, 0))


class _NewModel:
    """A model on its way into an array: number `place` of those fused in `tree`, whose first is one of the array's."""

    def __init__(self, model: torch.nn.Module, tree: Any, place: int) -> None:
        self.model, self._tree, self._place = model, tree, place

    def state(self) -> dict[str, torch.Tensor]:
        """Collect the model's tensors by name."""
        return {name: tensor[self._place] for name, tensor, _ in tensors_of_each(self._tree)}

    def shares(self, path: str, name: str) -> bool:
        """Return True if the model's tensor is that of the array, or equal to it."""
        return held_once(getattr(self._tree.get_submodule(path), name))

    def value(self, path: str, name: str) -> Any:
        """Find the model's value in a list of one per model, in the layer at `path`."""
        return getattr(self._tree.get_submodule(path), name)[self._place]

    def own(self, path: str, name: str) -> Any:
        """Find the model's value of an attribute, which may be its own."""
        module = self._tree.get_submodule(path)
        own = module.__dict__.get("_fused_own")
        return own[self._place][name] if own and name in own[0] else vars(module)[name]


class ArrayEdit:
    """Edit that fills slot k of `array` from slot `slots[k]`, or with `models[k]` where that is None.

    All checks come before the first change. Parameters stay the same objects with other data, so an optimizer's
    references hold; `companions` have `select(slots, **fresh)`. Where the number of models stays, and they differ in
    tensors alone, the rows of these are written in place.
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
                f"no optimizer or scheduler given takes {', '.join(sorted(set(fresh) - taken))}: pass them beside the "
                "model, as in array.append(model, optimizer, lr=1e-3)"
            )
        for slot, model in models.items():
            if not isinstance(model, torch.nn.Module):
                raise InvalidArgument(f"the new model of slot {slot} is a {type(model).__name__}: give a torch module")
        compared, self.new = self._new_models(models) if models else (None, {})
        self._attributes = EditedAttributes(array._root, self.slots, self.new, compared)
        if compared is not None and self._attributes.same:
            remember(array, array._root, list(models.values()))

    def _new_models(self, models: dict[int, torch.nn.Module]) -> tuple[torch.nn.Module | None, dict[int, Any]]:
        """Compare the new models with the array, if none like them was; return them by slot, and those that were
        compared as one tree."""
        if changed_slots(self.slots, self.array.B) is not None:
            fitting = those_that_fit(self.array, self.array._root, list(models.values()))
            if fitting is not None:
                return None, dict(zip(models, fitting, strict=True))
        tree = self._compared(models)
        return tree, {slot: _NewModel(m, tree, k) for k, (slot, m) in enumerate(models.items(), 1)}

    def _compared(self, models: dict[int, torch.nn.Module]) -> torch.nn.Module:
        """Fuse the new models with the first of the array, which compares them."""
        new = list(models.values())
        like = model_of(self.array._root, 0, copied=False)
        modes = {path: module.training for path, module in new[0].named_modules()}
        for path, module in like.named_modules():
            module.training = modes.get(path, module.training)  # those of the array hold
        device = next((p.device for p in self.array.parameters()), None)
        new = new if device is None else [model.to(device) for model in new]
        try:
            with equal_values(True):
                return Fusion([like, *new]).tree()
        except InvalidArgument as error:
            raise InvalidArgument(_of_new_models(str(error), len(new))) from None

    @torch.no_grad()
    def carry_out(self) -> None:
        """Give the array its new values, and let the companions follow; an error undoes it."""
        array = self.array
        new = {slot: one.state() for slot, one in self.new.items()}
        places = tensors_of_each(array._root)
        rows = self._rows(places, new)
        edition = edition_of(array)
        before = _Before(array, self.companions, changed_slots(self.slots, array.B) or [])
        self._attributes.look()
        if rows is None:
            self._make_anew(places, new)
        else:
            self._write(rows)
        try:
            for companion in self.companions:
                companion.select(self.slots, **_accepted(companion, self.fresh))
        except Exception:
            array.__dict__[EDITION] = edition
            before.put_back()
            raise

    def _rows(self, places: Sequence[_Kept], new: dict[int, dict[str, torch.Tensor]]) -> list[_Row] | None:
        """Collect the rows to write in place; None if more changes than values of tensors."""
        root, changed = self.array._root, changed_slots(self.slots, self.array.B)
        if changed is None or not self._attributes.same or any(map(keeps_more, root.modules())):
            return None
        rows, python, seen = [], set[str](), set[int]()
        for path, layer in root.named_modules():
            if isinstance(layer, ArrayModule):
                if any(list(getattr(layer, name)) != own for name, own in self._lists(layer, path).items()):
                    return None
                # Buffers with arguments, whose values Python knows, and does not read again.
                own = (name for name in layer.per_model_arguments if name not in layer.reread)
                python.update(f"{path}.{name}".lstrip(".") for name in own)
        for key, tensor, kind in places:
            if id(tensor) in seen or self._stays_shared(key, tensor):
                continue
            seen.add(id(tensor))
            if not has_rows(tensor):
                return None
            for slot in changed:
                value = self._row(key, tensor, slot, new.get(slot, {}).get(key))
                if key not in python:
                    rows.append((tensor, slot, value, kind))
                elif not torch.equal(tensor[slot], value):
                    return None
        return rows

    def _write(self, rows: list[_Row]) -> None:
        """Write rows in place; their tensors count a version more, as after a step of an optimizer."""
        grads = {tensor: self._gradient(tensor) for tensor, _, _, kind in rows if kind == "parameter"}
        for tensor, slot, value, _ in rows:
            tensor[slot].copy_(value)
        for tensor, grad in grads.items():
            tensor.grad = grad
        EditsInPlace.note()

    def _make_anew(self, places: Sequence[_Kept], new: dict[int, dict[str, torch.Tensor]]) -> None:
        """Make all tensors anew and put them in place."""
        array = self.array
        array.__dict__[EDITION] = edition_of(array) + 1  # from here on no runner's shards are models of this array
        made: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}
        for key, tensor, _ in places:
            if id(tensor) not in made:
                fresh = {slot: held.get(key) for slot, held in new.items()}
                made[id(tensor)] = self._gathered(key, tensor, fresh), self._gradient(tensor)
        for key, tensor, kind in places:
            value, grad = made[id(tensor)]
            if kind == "parameter":
                _become(tensor, value, grad)
            else:
                path, _, name = key.rpartition(".")
                array._root.get_submodule(path)._buffers[name] = value
        self._follow_in_modules()

    def _gradient(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Gather the gradients of the models that stay; None if there are new ones, which have none yet."""
        if tensor.grad is None or None in self.slots:
            return None
        return tensor.grad[torch.tensor(self.slots, device=tensor.device)]

    def _follow_in_modules(self) -> None:
        for path, module in list(self.array._root.named_modules()):
            found = settings_of(module)
            if isinstance(module, ArrayModule):
                module.__dict__.update(self._lists(module, path))  # of another number of models than until now
            else:
                self._attributes.follow(module, path)
            set_width(module, len(self.slots))
            if found:
                narrow_settings(module, found, self.slots)
        choose_models(self.array._root.modules(), self.slots)
        set_width(self.array, len(self.slots))

    def _gathered(self, key: str, tensor: torch.Tensor, fresh: dict[int, Any]) -> torch.Tensor:
        if self._stays_shared(key, tensor):
            return spread(tensor.data[:1], len(self.slots))
        if all(slot is not None for slot in self.slots):
            return _like(tensor, tensor.data[torch.tensor(self.slots, device=tensor.device)])
        rows = [self._row(key, tensor, slot, fresh.get(slot)) for slot in range(len(self.slots))]
        return _like(tensor, torch.stack(rows))

    def _row(self, key: str, tensor: torch.Tensor, slot: int, made: Any) -> torch.Tensor:
        """Find the values `[...]` that a slot of a tensor gets; `made` are a new model's."""
        source = self.slots[slot]
        if source is not None:
            return tensor.data[source]
        if made is None and key == FUNCTION_STREAM:
            made = torch.randint(-(1 << 62), 1 << 62, (2,), dtype=torch.int64)
            made[1] = 0
        row: torch.Tensor = made.to(tensor.device, tensor.dtype)
        return row

    def _stays_shared(self, key: str, tensor: torch.Tensor) -> bool:
        path, _, name = key.rpartition(".")
        alone = len(tensor) == 1 and not tensor.requires_grad and None in self.slots and 0 in self.slots
        new = (one.shares(path, name) for slot, one in self.new.items() if slot < len(self.slots))
        return (held_once(tensor) or alone) and name != FUNCTION_STREAM and all(new)

    def _lists(self, module: ArrayModule, path: str) -> dict[str, list[Any]]:
        """Collect a layer's lists of one value per model, as they are after the edit."""
        found = {}
        for name in module.per_model_lists:
            held = getattr(module, name)
            fresh = {slot: one.value(path, name) for slot, one in self.new.items()}
            found[name] = [fresh[k] if s is None else held[s] for k, s in enumerate(self.slots)]
        return found


def _of_new_models(message: str, count: int) -> str:
    """Reword an error of `fuse` for an edit, in which model 0 is the array's."""
    new = "the new model" if count == 1 else r"new model \1"
    return re.sub(r"models 0 and (\d+)", rf"the array and {new}", message)


def _like(tensor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Lay `value` out in memory in the order of `tensor`'s dimensions."""
    order = memory_order(tensor)
    back = [order.index(i) for i in range(len(order))]
    made = value.permute(order).contiguous().permute(back)
    # Where a size is 1 any stride will do, and a recorded step goes by the one it has seen.
    strides = zip(made.shape, made.stride(), tensor.stride(), strict=True)
    return made.as_strided(made.shape, [old if size == 1 else new for size, new, old in strides])


def _become(parameter: torch.Tensor, value: torch.Tensor, grad: torch.Tensor | None) -> None:
    """Give a parameter another value and gradient, perhaps of another number of models."""
    parameter.grad = None
    # While a loss of an earlier step is held, autograd keeps the shape that it expects of the parameter's gradient; a
    # change of type makes it look again.
    other = torch.float32 if value.dtype == torch.float16 else torch.float16
    parameter.data = value.new_empty(0, dtype=other)
    parameter.data = value
    parameter.grad = grad


class _Before:
    """State that an edit changes, to put it back."""

    def __init__(self, array: Any, companions: Sequence[Any], written: Sequence[int]) -> None:
        """`written` are the slots of which rows are written in place."""
        self.array, self.B = array, array.B
        parts = [one for companion in companions for one in _with_parts(companion)]
        modules = list(array._root.modules())
        held = [tensor for _, tensor, _ in tensors_of_each(array._root)] if written else []
        states = [tensor for companion in parts for tensor in _tensors_of(companion)]
        own = [t for t in (*held, *states) if has_rows(t) and t.dim() and len(t) == array.B]
        self.rows = SavedRows(own, written)
        self.tensors = [(p, p.data, p.grad) for p in array.parameters()]
        self.left = [(left, left.value) for module in modules for left in left_in(module)]
        self.kept = [keep_names(vars(one)) for one in (*modules, *parts)]
        inside = [module._buffers for module in modules]
        inside += [held for one in parts for held in (*vars(one).get("param_groups", ()), vars(one).get("state"))]
        self.kept += [kept for held in inside for kept in keep_contents(held)]

    def put_back(self) -> None:
        self.rows.put_back()  # first: groups make copies of what they are given
        for parameter, data, grad in self.tensors:
            _become(parameter, data, grad)
        for left, value in self.left:
            left.become(value)
        for kept in self.kept:
            kept.restore()
        set_width(self.array, self.B)


def _tensors_of(companion: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in the groups and the state of an optimizer, and those of a scaler."""
    held = vars(companion)
    for values in (*held.get("param_groups", ()), *held.get("state", {}).values(), held.get("_vectors", {})):
        yield from (value for value in dict(values).values() if isinstance(value, torch.Tensor))


def _with_parts(companion: Any) -> Iterator[Any]:
    """Yield a companion and its parts."""
    yield companion
    for part in (getattr(companion, "fused", None), *getattr(companion, "_schedulers", ())):
        if part is not None:
            yield from _with_parts(part)


def _accepted(companion: Any, fresh: dict[str, Any]) -> dict[str, Any]:
    """Choose the new models' values that are the companion's."""
    arguments = inspect.signature(companion.select).parameters.values()
    names = {argument.name for argument in arguments}
    if any(argument.kind is argument.VAR_KEYWORD for argument in arguments):
        leader = getattr(companion, "fused", companion)  # of a PartiallyFused
        names |= {*getattr(leader, "per_model", fresh), *getattr(leader, "pairs", ())}
        if hasattr(leader, "pairs"):
            names.add("max_grad_norm")
    return {name: value for name, value in fresh.items() if name in names}


class EditsInPlace:
    """Counter of this process; code with state of models beside their tensors compares it with the last one it has
    seen."""

    count = 0

    @classmethod
    def note(cls) -> None:
        """Count one more."""
        cls.count += 1
