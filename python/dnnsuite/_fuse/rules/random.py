# SPDX-License-Identifier: MIT
"""Rules of functions that draw random numbers: each model has a stream of its own, whatever its slot or neighbours."""

from __future__ import annotations

from typing import Any

import torch

from ..._torch import standard_gamma, tree_leaves, tree_map
from ...nn.functional.activation import leaky_by_chance
from ...nn.model_tensor import ModelTensor, NotFusable, physical, state, wrap_all
from ...nn.random_draws import draw, draw_gamma, fill
from ...nn.random_streams import FUNCTION_STREAM, advance
from .table import FINDERS, before_writing, in_place, rule, settle, width_of


def next_stream(B: int) -> torch.Tensor:
    """Return (key, step) `[B, 2]` for one draw by a function; the next draw gets another step."""
    stream: torch.Tensor | None = getattr(state.random, "_buffers", {}).get(FUNCTION_STREAM)
    if stream is None or stream.size(0) != B:
        raise NotFusable("random numbers are drawn outside an array's forward")
    return advance(stream)


_FILLS = {"rand_like": "uniform_", "randn_like": "normal_"}


@rule("rand_like randn_like")
def like(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kwargs.get("generator") is not None:
        return _by_generator(func, args, kwargs)
    options = _without_generator(kwargs)
    x = torch.empty_like(args[0].value, **options) if options else args[0].value.detach()
    return wrap_all(fill(_FILLS[func.__name__], x, next_stream(x.size(0))))


@rule("randint_like")
def integers_like(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kwargs.get("generator") is not None:
        return _by_generator(func, args, kwargs)
    kwargs = _without_generator(kwargs)
    bounds = [*args[1:], *(kwargs.pop(name) for name in ("low", "high") if name in kwargs)]
    x = torch.empty_like(args[0].value, **kwargs)
    low, high = (0, *bounds)[-2:]
    return wrap_all(fill("random_", x, next_stream(x.size(0)), (low, high)))


@rule(
    "normal uniform exponential bernoulli geometric log_normal cauchy random multinomial poisson binomial", writes=True
)
def drawn(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function with a generator argument once for each model."""
    if kwargs.get("out") is not None:
        raise NotFusable(f"{func.__name__}(out=...) has no meaning for several models")
    if kwargs.get("generator") is not None:
        return _by_generator(func, args, kwargs)
    kwargs = _without_generator(kwargs)
    if in_place(func):
        return _drawn_into(func, args, kwargs)
    settle()
    B = width_of(args, kwargs)
    own = _own(args, kwargs)
    args, kwargs = tree_map(physical, (args, kwargs))
    return wrap_all(draw(func.__name__, args, kwargs, own, next_stream(B)))


def _drawn_into(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    target, *others = args
    before_writing(func, target)
    own = _own(others, kwargs)
    others, kwargs = tree_map(physical, (others, kwargs))
    value = target.value
    value.copy_(fill(func.__name__, value, next_stream(value.size(0)), others, kwargs, own))
    return target


def gamma(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Draws of torch.distributions' Gamma, Chi2 and StudentT."""
    if len(args) != 1 or kwargs:
        return _by_generator(func, args, kwargs)
    settle()
    concentration = args[0].value
    return wrap_all(draw_gamma(func.__name__, concentration, next_stream(concentration.size(0))))


FINDERS.append(lambda func: gamma if func is standard_gamma else None)


def _own(args: Any, kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """List the tensors `[B, ...]` of each model among the arguments."""
    return [leaf.value for leaf in tree_leaves((args, kwargs)) if type(leaf) is ModelTensor]


def _without_generator(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if name != "generator"}


def _by_generator(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Draw from the user's own generator, which is one model's."""
    if width_of(args, kwargs) != 1:
        raise NotFusable(f"{func.__name__} draws from a generator that it is given, which is one model's")
    if in_place(func):
        before_writing(func, args[0])
    own_args, own_kwargs = tree_map(_of_the_only_model, (args, kwargs))
    result = func(*own_args, **own_kwargs)
    return args[0] if in_place(func) else wrap_all(result.unsqueeze(0))


def _of_the_only_model(value: Any) -> Any:
    return value.value[0] if type(value) is ModelTensor else value


@rule("rrelu")
def rrelu(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute `rrelu` with slopes drawn for each model; the in-place variant is made from it."""
    given = dict(zip(_RRELU, args, strict=False)) | kwargs
    x = given["input"].value
    rng = next_stream(len(x)) if given.get("training") else None
    result = leaky_by_chance(x, given.get("lower", 1.0 / 8), given.get("upper", 1.0 / 3), rng)
    if not given.get("inplace"):
        return wrap_all(result)
    before_writing(func, given["input"])
    x.copy_(result)
    return given["input"]


_RRELU = ("input", "lower", "upper", "training", "inplace")
