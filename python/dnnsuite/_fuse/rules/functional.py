# SPDX-License-Identifier: MIT
"""Rules of `torch.nn.functional`: the function of that name in `dnnsuite.nn.functional`; of gradients that a forward
takes itself; and of functions that get a number of each model where torch takes one: a slope, an eps, an exponent.

Arithmetic takes such numbers as a tensor `[B]`, and functions of `dnnsuite.nn.functional` that know such arguments take
them as they are. Any other function is called once for each model, with the bits of a model that is alone; the code
around that call stays fused.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch.nn import functional

from ..._torch import tree_flatten, tree_unflatten
from ...nn import functional as ours
from ...nn.model_tensor import ModelTensor, NotFusable, Refused, expanded, outside, state, wrap, wrap_all
from ...nn.sharing import is_shared, own
from ...nn.waiting import input_of_relu
from ...ops.device import numbers
from ..code.stand_in import FLOATS, ModelNumber
from .once import FOR_ONE, draws_numbers
from .once import in_place as is_in_place
from .random import next_stream
from .table import (
    CALLS_OURS,
    FINDERS,
    OF_OWN_NUMBERS,
    FunctionRule,
    arguments,
    before_writing,
    plain_name,
    rule,
    settle,
    width_of,
)


def gradients(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute `torch.autograd.grad` of all models at once.

    They share nothing, so the gradient of `[B, ...]` by `[B, ...]` holds each model's own."""
    outputs, inputs = (_listed(given) for given in args[:2])
    settle()
    if any(type(x) is not ModelTensor for x in (*outputs, *inputs)):
        raise NotFusable("autograd.grad of or by a tensor that all models share")
    if any(is_shared(x.value) for x in inputs):
        raise NotFusable("autograd.grad by a tensor that is in memory once for all models")
    options = dict(kwargs)
    if options.get("is_grads_batched"):
        raise NotFusable("autograd.grad of batched gradients")
    given = options.pop("grad_outputs", None)
    factors = [None] * len(outputs) if given is None else _listed(given)
    pairs = zip(outputs, factors, strict=True)
    options["grad_outputs"] = [_ones(y) if g is None else expanded(g, y.B) for y, g in pairs]
    try:
        with outside():
            found = torch.autograd.grad([y.value for y in outputs], [x.value for x in inputs], **options)
    except RuntimeError as error:
        raise NotFusable(f"autograd.grad: {str(error).splitlines()[0]}") from error
    if any(gradient is None for gradient in found):
        raise NotFusable("autograd.grad by a tensor that is not used")
    return tuple(map(wrap, found))


def _listed(given: Any) -> list[Any]:
    return [given] if isinstance(given, torch.Tensor) else list(given)


def _ones(output: ModelTensor) -> torch.Tensor:
    """Make the factors of an output that is one number per model."""
    if output.shape.numel() != 1:
        raise NotFusable("autograd.grad of more than one number without grad_outputs")
    return torch.ones_like(output.value)


FINDERS.append(lambda func: gradients if func is torch.autograd.grad else None)


@rule("requires_grad", writes=True)
def requires_grad(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Let a tensor take a gradient. Its gradient is each model's own, so it has to be in the memory of each."""
    target = args[0]
    settle()
    wanted = args[1] if len(args) > 1 else kwargs.get("requires_grad", True)
    if wanted and is_shared(target.value) and not target.value.requires_grad:
        target.become(own(target.value))
        target.fresh = None
    target.value.requires_grad_(wanted)
    return target


FINDERS.append(lambda func: requires_grad if func == torch.Tensor.requires_grad.__set__ else None)  # type: ignore[attr-defined]


def gradient_hook(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Refuse a hook that a forward registers on a parameter; one on what it computes is each model's own."""
    value = args[0].value if type(args[0]) is ModelTensor else args[0]
    if value.is_leaf and value.requires_grad:
        raise Refused(
            f"the forward registers a hook on the gradient of a parameter ({func.__name__}), whose parts are other "
            "tensors in each step: register it on the array's parameter after fuse, for the gradients of all models, "
            "[B, ...]"
        )
    raise NotFusable(func.__name__)


_HOOKS = (torch.Tensor.register_hook, torch.Tensor.register_post_accumulate_grad_hook)
FINDERS.append(lambda func: gradient_hook if func in _HOOKS else None)


#: Functions of torch called as those of that name in torch.nn.functional are: `torch.max_pool2d(x, 2)`. Up to how many
#: arguments mean the same in both; behind them torch has options of one backend.
_TWINS: dict[Any, int] = {
    torch.max_pool1d: 6,
    torch.max_pool2d: 6,
    torch.max_pool3d: 6,
    torch.layer_norm: 5,
    torch.group_norm: 5,
    torch.dropout: 3,
}
#: Activations whose rule goes on with tensors that wait; those here only take a number per model as well.
_BY_ELEMENT = frozenset(("celu", "hardshrink", "hardtanh", "leaky_relu", "softshrink", "threshold"))
_BACKEND_OPTIONS = frozenset({"cudnn_enable", "cudnn_enabled"})


def _as_functional(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Turn the arguments of one of `_TWINS` into those of its twin."""
    names = {"train": "training"}
    kept = {names.get(name, name): value for name, value in kwargs.items() if name not in _BACKEND_OPTIONS}
    return args[: _TWINS[func]], kept


def _unwrapped(args: tuple[Any, ...], kwargs: dict[str, Any], B: int) -> tuple[Any, dict[str, Any]]:
    """Unwrap every ModelTensor among the arguments, and expand every shared tensor to `[B, ...]`."""
    if any(isinstance(value, (tuple, list, dict)) for value in (*args, *kwargs.values())):
        found: tuple[Any, dict[str, Any]] = arguments((args, kwargs), B)
        return found
    return [expanded(value, B) for value in args], {name: expanded(kwargs[name], B) for name in kwargs}


def layer_rule(func: Any) -> FunctionRule | None:
    """Find the rule of a function of torch.nn.functional, or of its twin in torch, that `dnnsuite.nn.functional` has
    too."""
    name = getattr(func, "__name__", "")
    twin = func in _TWINS
    if name == "_scaled_dot_product_attention" or not (twin or getattr(functional, name, None) is func):
        return None
    mine = getattr(ours, name, None)
    if mine is None or mine is func or name in _BY_ELEMENT or name not in ours.__all__:
        return None
    pools = name in ("max_pool1d", "max_pool2d")
    indexes = name in ("max_pool1d_with_indices", "max_pool2d_with_indices")
    draws = "rng" in inspect.signature(mine).parameters

    def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        B = state.B or width_of(args, kwargs)
        if twin:
            args, kwargs = _as_functional(func, args, kwargs)
        plain_pool = indexes or (pools and not kwargs.get("return_indices"))
        if plain_pool and len(args) < 7 and type(args[0]) is ModelTensor:
            before = input_of_relu(args[0].deferred)
            if before is not None:
                return wrap_all(ours.max_pool_of_relu(mine, before, *args[1:], **kwargs))
        if kwargs.get("inplace"):
            settle()
        args, kwargs = _unwrapped(args, kwargs, B)
        if draws:
            kwargs["rng"] = next_stream(B)
        return wrap_all(mine(*args, **kwargs))

    def for_one(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if twin:
            args, kwargs = _as_functional(func, args, kwargs)
        if draws:
            kwargs["rng"] = torch.zeros(1, 2, dtype=torch.int64)  # nothing is drawn
        return mine(*args, **kwargs)

    FOR_ONE[call] = for_one
    CALLS_OURS.add(call)
    return call


FINDERS.append(layer_rule)


_ARITHMETIC = frozenset((
    "add", "radd", "sub", "rsub", "subtract", "mul", "rmul", "multiply", "div", "divide", "truediv", "rtruediv",
    "true_divide", "clamp", "clip", "clamp_min", "clamp_max", "eq", "ne", "lt", "le", "gt", "ge", "greater", "less",
    "greater_equal", "less_equal", "not_equal",
))  # fmt: skip


def with_own_numbers(found: FunctionRule, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute `func(*args, **kwargs)`, some of whose arguments are a `ModelNumber`; `found` is its rule."""
    name = plain_name(func)
    if kwargs.get("out") is not None:
        raise NotFusable(f"{name}(out=...) has no meaning for several models")
    dtypes = {value.dtype for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)}
    if name in _ARITHMETIC and len(dtypes) == 1 and dtypes <= FLOATS and type(kwargs.get("alpha")) is not ModelNumber:
        tensors = {key: _as_tensor(value, dtypes, args) for key, value in kwargs.items()}
        return found(func, tuple(_as_tensor(value, dtypes, args) for value in args), tensors)
    if _takes(getattr(ours, name, None), args, kwargs) and not is_in_place(func) and not kwargs.get("inplace"):
        return _by_ours(found, func, args, kwargs)
    if name == "rrelu":
        return found(func, args, kwargs)
    if draws_numbers(name, args, kwargs):
        raise NotFusable(f"{name} draws random numbers by one that differs from model to model")
    return _model_by_model(func, args, kwargs)


OF_OWN_NUMBERS.append(with_own_numbers)


def _as_tensor(value: Any, dtypes: Iterable[torch.dtype], args: tuple[Any, ...]) -> Any:
    """Turn the numbers of the models into a tensor of one number per model."""
    if type(value) is not ModelNumber:
        return value
    device = next(a.device for a in args if isinstance(a, torch.Tensor))
    return ModelTensor(numbers(list(value), next(iter(dtypes)), device))


def _takes(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True if a function of `dnnsuite.nn.functional` takes a value per model for each argument that has some."""
    names: frozenset[str] = getattr(function, "own_numbers", frozenset())
    if not names:
        return False
    positional = list(inspect.signature(function).parameters)[: len(args)]
    given = {**dict(zip(positional, args, strict=False)), **kwargs}
    return all(name in names for name, value in given.items() if type(value) is ModelNumber)


def _by_ours(found: FunctionRule, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if found in CALLS_OURS:
        return found(func, args, kwargs)
    B = width_of(args, kwargs)
    args = tuple(expanded(value, B) for value in args)
    result: torch.Tensor = getattr(ours, plain_name(func))(*args, **{k: expanded(v, B) for k, v in kwargs.items()})
    return wrap(result)


def _model_by_model(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `func` once for each model on its tensors and numbers, and stack what it returns.

    A function that writes into its first argument writes into a copy of each model's, and these become its value in one
    pass: gradients of some functions read their result, which a write for another model would make stale.
    """
    writes = bool(is_in_place(func) or kwargs.get("inplace"))
    if writes:
        before_writing(func, args[0])
    settle()
    leaves, spec = tree_flatten((args, kwargs))
    B = next(len(list(leaf)) for leaf in leaves if type(leaf) is ModelNumber)
    parts = [_parts(leaf, B) for leaf in leaves]
    if writes:
        parts[0] = [part.clone() for part in parts[0]]
    results = []
    with outside():
        for mine in zip(*parts, strict=True):
            own_args, own_kwargs = tree_unflatten(list(mine), spec)
            results.append(func(*own_args, **own_kwargs))
    if writes:
        args[0].value.copy_(torch.stack(results))
        return args[0]
    if not all(type(result) is torch.Tensor for result in results):
        raise NotFusable(f"{plain_name(func)} of a number that differs from model to model gives no tensor")
    return wrap(torch.stack(results))


def _parts(leaf: Any, B: int) -> Iterable[Any]:
    """Split an argument into that of each model: a gradient of `unbind` is one stack, of B indices B tensors."""
    if type(leaf) is ModelNumber:
        return leaf
    if type(leaf) is not ModelTensor:
        return [leaf] * B
    value = leaf.value
    return value.unbind(0) if value.requires_grad else [value[index] for index in range(B)]
