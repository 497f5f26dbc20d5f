# SPDX-License-Identifier: MIT
"""Table of rules: the meaning of each torch function on the tensors of B models; functions without one are mapped.

`torch.vmap` gives the same result but costs about 0.1 ms per call; a rule makes one call on `[B, ...]`. Functions
without a rule run under vmap, and `coverage` lists them.
"""

from __future__ import annotations

import functools
import itertools
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import torch

from ..._torch import (
    backward_pass,
    forward_gradients,
    function_apply_code,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_unflatten,
)
from ...errors import InvalidArgument
from ...nn import model_tensor
from ...nn.model_tensor import ModelTensor, NotFusable, WritesShared, state, wrap_all
from ...nn.sharing import is_shared
from ...ops.library import is_read_by_backward
from ..code.stand_in import ModelNumber
from .once import IN_PLACE_OPERATORS, own_before_writing, shared_result
from .once import in_place as in_place
from .once import settle as settle
from .once import settle_since as settle_since

FunctionRule = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
QuickRule = Callable[..., Any]  # of the function, the first argument's value, the arguments and, of some, keywords

#: Rules by the function's name, whether it is in torch, torch.nn.functional, or a method; in-place twins included.
BY_NAME: dict[str, FunctionRule] = {}
#: Rules that write into their first argument themselves when the function is an in-place twin.
WRITING: set[FunctionRule] = set()
#: Rules that may go on with a tensor that waits, and else compute once themselves what is the same for all models.
CONTINUING: set[FunctionRule] = set()
#: Functions that find a rule by the torch function itself; they come before the names.
FINDERS: list[Callable[[Any], FunctionRule | None]] = []
#: What computes a function, whose rule is its first argument, that gets a `ModelNumber`: see `functional.py`.
OF_OWN_NUMBERS: list[Callable[[FunctionRule, Any, tuple[Any, ...], dict[str, Any]], Any]] = []
#: Rules that call the function of this name in `dnnsuite.nn.functional`.
CALLS_OURS: set[FunctionRule] = set()
#: By rule, what finds the quick rule of a torch function, or None: see `quick.py`.
QUICK: dict[FunctionRule, Callable[[Any], QuickRule | None]] = {}
#: Rules whose quick rules take `dim` and `keepdim` as keywords.
WITH_WORDS: set[FunctionRule] = set()
_WORDS = frozenset(("dim", "keepdim"))
#: Rules that never go on with a tensor that waits.
NEEDING_VALUE: set[FunctionRule] = set()
#: Code that runs inside an autograd.Function whose backward is known to be right for B models.
UNDERSTOOD_FUNCTIONS: set[types.CodeType] = set()


def rule(names: str, writes: bool = False) -> Callable[[FunctionRule], FunctionRule]:
    """Register a function as the rule for each of `names`. With `writes` it handles in-place twins itself."""

    def add(function: FunctionRule) -> FunctionRule:
        for name in names.split():
            BY_NAME[name] = function
        if writes:
            WRITING.add(function)
        return function

    return add


def interpret(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute `func(*args, **kwargs)` for all models at once."""
    if state.wary and not torch.is_grad_enabled() and not forward_gradients():
        _refuse_autograd_function()
    found, quick = _resolve(func)
    own = False  # the first argument is computed, and is each model's own
    if state.B and args and type(first := args[0]) is ModelTensor:
        x = first._value
        if x is None and found in NEEDING_VALUE and first.deferred is not None and not first.deferred.shared:
            x = first.value
        own = x is not None and x.stride(0) != 0
        if own and quick is not None and (not kwargs or (found in WITH_WORDS and kwargs.keys() <= _WORDS)):
            result = quick(func, x, args, **kwargs)
            if result is not None:
                return result
    if ModelNumber in map(type, args) or (kwargs and ModelNumber in map(type, kwargs.values())):
        return OF_OWN_NUMBERS[0](found, func, args, kwargs)
    if not state.B:
        _refuse_outside(func, args)
    elif not own and (result := _once(found, func, args, kwargs)) is not NotImplemented:
        return result
    if kwargs:
        if not _NUMPY_NAMES.keys().isdisjoint(kwargs) and not isinstance(func, types.FunctionType):
            kwargs = {_NUMPY_NAMES.get(name, name): value for name, value in kwargs.items()}
        if any(type(value) in (ModelTensor, list, tuple) for value in kwargs.values()):
            args, kwargs = _with_tensors_first(func, args, kwargs)
    return found(func, args, kwargs)


model_tensor.handler = interpret


def _once(found: FunctionRule, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute once a result that is the same for all models; NotImplemented if it is not."""
    first = args[0] if args else None
    if type(first) in (list, tuple) and first:
        first = first[0]
    if type(first) is ModelTensor:
        if first.deferred is not None:
            if found in CONTINUING or not first.deferred.shared:
                return NotImplemented
        elif not is_shared(first.value):
            return NotImplemented
    return shared_result(func, args, kwargs, found)


def _refuse_outside(func: Any, args: tuple[Any, ...]) -> None:
    """Refuse an ordinary tensor beside a per-model one that left the array in an object or a hook."""
    plain = [a for a in args if isinstance(a, torch.Tensor) and type(a) is not ModelTensor and a.dim()]
    if plain and backward_pass() == -1:
        raise InvalidArgument(
            f"{getattr(func, '__name__', func)} gets a tensor of each model, which left the array in an object or a "
            f"hook, and an ordinary tensor {list(plain[0].shape)}: take `.value` of the first, which is [B, ...]"
        )


def _refuse_autograd_function() -> None:
    """Raise NotFusable in the forward of a user's autograd.Function: its backward knows nothing of B."""
    if function_apply_code is None:
        raise NotFusable("gradients are off, and this torch does not tell in an autograd.Function or not")
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code not in UNDERSTOOD_FUNCTIONS:
        if frame.f_code is function_apply_code:
            raise NotFusable("an autograd.Function has a backward of its own")
        frame = frame.f_back


#: Names that torch's own functions take for theirs.
_NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input", "x2": "other"}


def _with_tensors_first(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Move tensors that are named, as in `torch.softmax(input=x, dim=1)`, to the places where rules look for them."""
    for known, leading in _parameters_of(func):
        if kwargs.keys() <= known:
            named = itertools.takewhile(kwargs.__contains__, leading[len(args) :])
            moved = {name: kwargs[name] for name in named}
            rest = {name: value for name, value in kwargs.items() if name not in moved}
            return (*args, *moved.values()), rest
    return args, kwargs


@functools.lru_cache(maxsize=1024)
def _parameters_of(func: Any) -> list[tuple[frozenset[str], list[str]]]:
    """List the names of a torch function's parameters, all of them and the tensors at the start, by overload."""
    packet = None if isinstance(func, types.FunctionType) else getattr(torch.ops.aten, func.__name__, None)
    found = []
    for overload in packet.overloads() if packet is not None else ():
        parameters = getattr(packet, overload)._schema.arguments
        names = ["input" if p.name == "self" else p.name for p in parameters]
        tensors = itertools.takewhile(lambda p: "Tensor" in str(p.type), parameters)
        found.append((frozenset(names), names[: len(list(tensors))]))
    return found


def plain_name(func: Any) -> str:
    """Name the operation of a function: `add` for torch.add, Tensor.add_, `__add__` and `__iadd__`."""
    name: str = func.__name__
    if name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
        if name[0] == "i" and name[1:] in IN_PLACE_OPERATORS:
            return name[1:]
        return name
    return name.rstrip("_") if name.rstrip("_") in BY_NAME else name


@functools.cache
def _resolve(func: Any) -> tuple[FunctionRule, QuickRule | None]:
    if getattr(func, "__name__", None) is None:
        return map_over_models, None
    found = next(filter(None, (find(func) for find in FINDERS)), None) or BY_NAME.get(plain_name(func))
    if found is None:
        return map_over_models, None
    if in_place(func) and found not in WRITING:
        return _put_back(found), None
    return found, QUICK[found](func) if found in QUICK else None


def check_own(func: Any, target: Any) -> None:
    """Refuse to write values of each model into a tensor that all models share."""
    if type(target) is not ModelTensor:
        raise WritesShared(f"{func.__name__} writes a value of each model into a tensor that all models share")


def before_writing(func: Any, target: Any) -> None:
    """Prepare for an in-place function: check `target`, and compute every tensor that still waits."""
    check_own(func, target)
    settle()
    check_writable(target)
    if is_shared(target.value):
        own_before_writing(target)


def _put_back(found: FunctionRule) -> FunctionRule:
    """Make the rule of an in-place twin from that of the function: its result becomes the first argument's value."""

    def write(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        first = args[0]
        before_writing(func, first)
        result = found(func, args, kwargs).value
        if result.shape == first.value.shape:
            first.value.copy_(result)
        else:  # t_, squeeze_ and the like
            first.become(result)
        return first

    return write


def arguments(args: Any, B: int) -> Any:
    """Unwrap every ModelTensor among the arguments, and expand every shared tensor to `[B, ...]`."""
    return tree_map(lambda a: model_tensor.expanded(a, B), args)


def width_of(args: Any, kwargs: dict[str, Any]) -> int:
    """Find B from the ModelTensors among the arguments."""
    for value in tree_leaves((args, kwargs)):
        if type(value) is ModelTensor:
            return value.B
    return state.B


def check_writable(target: ModelTensor) -> None:
    """Refuse a write into a copy that would be a view in torch, whose source would change too, and into what only here
    a gradient reads."""
    if target.unsure:
        raise NotFusable("it writes into a reshaped tensor, which is a copy here and may be a view in torch")
    if is_read_by_backward(target.value):
        raise NotFusable("it writes into the output of a recurrent layer, which the layer's gradient reads")


#: Functions whose gradient under torch.vmap is another one than without.
_RESIZING = frozenset({"resize_", "resize_as_", "fused_moving_avg_obs_fake_quant"})
_WRONG_UNDER_VMAP = frozenset({"select_scatter"})


def map_over_models(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function without a rule under `torch.vmap`."""
    name = getattr(func, "__name__", repr(func))
    if name in _WRONG_UNDER_VMAP:
        raise NotFusable(f"the gradient of {name} under torch.vmap is wrong in torch")
    if name in _RESIZING:
        raise NotFusable(f"{name} gives a tensor another size in place")
    if kwargs.get("out") is not None:
        raise NotFusable(f"{name}(out=...) has no meaning for several models")
    settle()
    begin = time.perf_counter()
    leaves, spec = tree_flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if type(leaf) is ModelTensor]
    values = [leaves[i].value for i in places]

    def one(*own: torch.Tensor) -> Any:
        for place, value in zip(places, own, strict=True):
            leaves[place] = value
        inner_args, inner_kwargs = tree_unflatten(leaves, spec)
        return func(*inner_args, **inner_kwargs)

    try:
        output = wrap_all(torch.vmap(one)(*values))
        if state.report is not None:
            state.report.mapped[name] += 1
            state.report.seconds += time.perf_counter() - begin
        return output
    except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        raise NotFusable(f"{name}: {str(error).splitlines()[0]}") from error


def raw(value: Any) -> Any:
    """Unwrap an argument that may be a list of tensors."""
    if type(value) is ModelTensor:
        return value.value
    if type(value) in (tuple, list):
        return type(value)(raw(v) for v in value)
    return value
