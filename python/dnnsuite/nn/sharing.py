# SPDX-License-Identifier: MIT
"""Tensors that all models of an array share: `[B, ...]` in the memory of one, stride 0 in dimension 0. Layers whose
models are alike, on an input that all models share, are computed once, by a layer of one model."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ..errors import InvalidArgument
from ..ops.shared import folded as folded
from ..ops.shared import is_frozen as is_frozen
from ..ops.shared import is_shared as is_shared
from ..ops.shared import once as once
from ..ops.shared import spread as spread

Tensor = torch.Tensor


def own(x: Tensor) -> Tensor:
    """Copy a tensor so that each model has its own memory."""
    return x.clone(memory_format=torch.contiguous_format)


def held_once(x: Tensor) -> bool:
    """Return True for state `[B, ...]` in the memory of one model: shared by all, or lent by the only one (`lent`)."""
    return x.dim() > 0 and x.layout == torch.strided and x.stride(0) == 0 and x.numel() > 0


def lent(one: Tensor, B: int) -> Tensor:
    """View a tensor `[...]` as state of B models that hold it once. For one model the stride is 0 too, which marks
    memory that the array does not own."""
    return one.expand(B + 1, *one.shape)[:B]


def same_memory(values: Sequence[Any]) -> bool:
    """Return True if all `values` are one tensor, or lie in the same place in the same way."""
    first = values[0]
    return all(other is first or _same_place(first, other) for other in values[1:])


def _same_place(a: Any, b: Any) -> bool:
    return (
        _plain(a)
        and _plain(b)
        and a.device == b.device
        and a.device.type != "meta"
        and (a.dtype, a.shape, a.stride(), a.data_ptr()) == (b.dtype, b.shape, b.stride(), b.data_ptr())
    )


def _equal(values: Sequence[Tensor]) -> bool:
    first = values[0]
    return all(
        (v.shape, v.dtype, v.device) == (first.shape, first.dtype, first.device) and torch.equal(v, first)
        for v in values[1:]
    )


class _Asked(threading.local):
    """Requests of this thread's `equal_values`."""

    def __init__(self) -> None:
        self.equal = False


_asked = _Asked()


@contextlib.contextmanager
def equal_values(asked: bool) -> Iterator[None]:
    """Context manager: tensors that take no gradient and are equal in all models are kept once, if `asked`."""
    before, _asked.equal = _asked.equal, asked
    try:
        yield
    finally:
        _asked.equal = before


def shareable(name: str, values: Sequence[Any]) -> bool:
    """Return True if the models' tensors can be kept once: they are one tensor, or equal within `equal_values`.

    A parameter of a single model is kept where it is, too, if it takes no gradient.

    Raises:
        InvalidArgument: if models share a tensor that takes a gradient.
    """
    first = values[0]
    if any(getattr(value, "requires_grad", False) for value in values):
        _refuse_trained(name, values)
        return False
    if not _plain(first):
        return False
    if len(values) == 1:
        return isinstance(first, torch.nn.Parameter)
    if same_memory(values):
        return True
    return _asked.equal and all(map(_plain, values)) and _equal(values)


def _plain(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout == torch.strided and value.numel() > 0


def _refuse_trained(name: str, values: Sequence[Any]) -> None:
    """Refuse a tensor of several models that takes a gradient in one of them."""
    seen: dict[Any, int] = {}
    for index, value in enumerate(values):
        place = _place(value)
        if place is None:
            continue
        other = seen.setdefault(place, index)
        if other != index and (value.requires_grad or values[other].requires_grad):
            raise InvalidArgument(
                f"models {other} and {index} share {name}, which takes a gradient, so a loop over them would train it "
                "once for each: freeze it (requires_grad_(False)), or give each model its own (copy.deepcopy)"
            )


def _place(value: Any) -> Any:
    if not _plain(value):
        return None
    return id(value) if value.device.type == "meta" else (value.device, value.data_ptr())


def held_by(module: torch.nn.Module) -> Iterator[tuple[dict[str, Any], str, Tensor]]:
    """Yield (registry, name, tensor) of each parameter and buffer of `module` itself that is held once."""
    for registry in (module._parameters, module._buffers):
        for name, value in registry.items():
            if value is not None and held_once(value):
                yield registry, name, value


def make_own(module: torch.nn.Module, names: Sequence[str] | None = None) -> bool:
    """Give each model its own memory for the shared tensors of `module` (or for those in `names`).

    Parameters stay the same objects. Returns True if there were any.
    """
    found = [entry for entry in held_by(module) if names is None or entry[1] in names]
    for registry, name, value in found:
        if isinstance(value, torch.nn.Parameter):
            value.data = own(value.data)
        else:
            registry[name] = own(value)
    return bool(found)


def own_what_trains(root: torch.nn.Module) -> bool:
    """Copy, for each model, the shared tensors that a step would now change: parameters that have come to take a
    gradient, running statistics in training mode. Returns True if there were any."""
    found = False
    for module in root.modules():
        trained = [name for name, value in module._parameters.items() if value is not None and value.requires_grad]
        found |= bool(trained) and make_own(module, trained)
        written = getattr(module, "own_written", None)
        found |= written is not None and written()
    return found


class SharedState:
    """Mix-in of an array's modules: shared parameters and buffers stay one tensor through torch's methods."""

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Any:
        return super()._apply(lambda x: once(fn, x), recurse)  # type: ignore[misc]

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Set `requires_grad` of all parameters; a shared tensor that is trained becomes each model's own."""
        if requires_grad:
            for module in self.modules():  # type: ignore[attr-defined]
                make_own(module, list(module._parameters))
        return super().requires_grad_(requires_grad)  # type: ignore[misc]

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *rest: Any
    ) -> None:
        stand_ins = {} if local_metadata.get("assign_to_params_buffers") else self._stand_ins(state_dict, prefix)
        given = {**state_dict, **{prefix + name: part for name, (*_, part) in stand_ins.items()}}
        for name, (registry, _, stand_in, _) in stand_ins.items():
            registry[name] = stand_in
        try:
            super()._load_from_state_dict(given, prefix, local_metadata, *rest)  # type: ignore[misc]
        finally:
            for name, (registry, value, stand_in, _) in stand_ins.items():
                registry[name] = value
                if not torch.equal(stand_in, value[:1]):  # not into its place: others may hold that
                    value.data = lent(stand_in.detach()[0], value.size(0))

    def _stand_ins(self, state_dict: dict[str, Any], prefix: str) -> dict[str, Any]:
        """Find the value to load for each shared tensor: (registry, tensor, a copy of one row, the row of
        `state_dict`). If the loaded rows differ, each model gets memory of its own."""
        found: dict[str, Any] = {}
        for registry, name, value in held_by(self):  # type: ignore[arg-type]
            rows = state_dict.get(prefix + name)
            if not isinstance(rows, Tensor) or rows.shape != value.shape:
                continue  # torch has the message
            if is_shared(rows) or all(torch.equal(row, rows[0]) for row in rows[1:]):
                stand_in: Tensor = value.detach()[:1].clone()
                if isinstance(value, torch.nn.Parameter):
                    stand_in = torch.nn.Parameter(stand_in, requires_grad=False)
                found[name] = registry, value, stand_in, rows[:1]
            else:
                make_own(self, [name])  # type: ignore[arg-type]
        return found

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        copies_of_shared(self, memo)  # type: ignore[arg-type]
        parts: Any = self.__reduce_ex__(4)
        make, arguments, held = parts[:3]
        made = memo[id(self)] = make(*arguments)
        made.__setstate__(copy.deepcopy(held, memo))
        return made


def copies_of_shared(root: torch.nn.Module, memo: dict[int, Any]) -> None:
    """Put copies of the shared parameters under `root` into `memo`; torch would copy them as B."""
    for module in root.modules():
        for _, _, value in held_by(module):
            if id(value) not in memo and isinstance(value, torch.nn.Parameter):
                made = spread(value.detach()[:1].clone(), value.size(0))
                memo[id(value)] = torch.nn.Parameter(made, requires_grad=value.requires_grad)


#: Name of an array's buffer, int64 `[B, 2]`, with the random streams of functions that belong to no layer.
FUNCTION_STREAM = "_function_stream"


def runs_once(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True if every model computes the same from these arguments `[B, ...]`, now."""
    first = args[0] if args else None
    if not isinstance(first, torch.Tensor) or first.requires_grad or not is_shared(first):
        return False
    return all(map(_is_shared, (*args[1:], *kwargs.values()))) and layer.is_alike()


def _is_shared(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return is_frozen(value)
    if type(value) in (tuple, list):
        return all(map(_is_shared, value))
    return value is None or isinstance(value, (bool, int, float, str, torch.Size, torch.dtype))


def call_once(forward: Callable[..., Any], layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `forward(layer, *args, **kwargs)`; for models that are alike once, with the result expanded."""
    if not runs_once(layer, args, kwargs):
        return forward(layer, *args, **kwargs)
    own = {name: first_of(value) for name, value in kwargs.items()}
    return spread_all(forward(layer.of_one(), *map(first_of, args), **own), layer.B)


def first_of(value: Any) -> Any:
    """Take the first model's part `[1, ...]` of tensors `[B, ...]`, alone or in a tuple or list."""
    if isinstance(value, torch.Tensor):
        return value[:1]
    return type(value)(map(first_of, value)) if type(value) in (tuple, list) else value


def spread_all(result: Any, B: int) -> Any:
    """Expand the tensors `[1, ...]` of a result to `[B, ...]`."""
    if isinstance(result, torch.Tensor):
        return spread(result, B)
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*(spread_all(part, B) for part in result))
    if isinstance(result, (tuple, list)):
        return type(result)([spread_all(part, B) for part in result])
    return result


def alike(module: torch.nn.Module) -> bool:
    """Return True if all models share the tensors that `module` and its parts hold, and its parts are alike."""
    names = _of_no_model(module)
    return (
        all(value is None or is_frozen(value) for value in module._parameters.values())
        and all(v is None or n in names or is_frozen(v) for n, v in module._buffers.items())
        and all(map(_is_alike, module.children()))
    )


def _of_no_model(module: torch.nn.Module) -> tuple[str, ...]:
    """Name buffers that are not a part of the models: they have no dimension for them, or are the array's."""
    return (*getattr(module, "shared_buffers", ()), FUNCTION_STREAM)


def _is_alike(part: Any) -> bool:
    return bool(part.is_alike()) if hasattr(part, "is_alike") else alike(part)


def layer_of_one(module: Any) -> Any:
    """Make a new layer of one model on the memory that the models of `module` share."""
    one = object.__new__(type(module))
    one.__dict__.update(module.__dict__)
    names = _of_no_model(module)
    one.__dict__["_parameters"] = {n: None if p is None else p[:1] for n, p in module._parameters.items()}
    one.__dict__["_buffers"] = {n: b if b is None or n in names else b[:1] for n, b in module._buffers.items()}
    one.__dict__["_modules"] = {
        n: p.of_one() if hasattr(p, "of_one") else layer_of_one(p) if p is not None and p._modules else p
        for n, p in module._modules.items()
    }
    return one
