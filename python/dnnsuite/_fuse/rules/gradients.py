# SPDX-License-Identifier: MIT
"""Rules of gradients that a forward takes itself, and of `torch.nn.functional`: the function of that name here."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.nn import functional

from ...nn import functional as ours
from ...nn.model_tensor import ModelTensor, NotFusable, Refused, expanded, outside, state, wrap, wrap_all
from ...nn.sharing import is_shared, own
from ...nn.waiting import input_of_relu
from .once import FOR_ONE
from .random import next_stream
from .table import CALLS_OURS, FINDERS, FunctionRule, arguments, rule, settle, width_of


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
