# SPDX-License-Identifier: MIT
"""A value per model where torch takes one number: a margin, a smoothing, the slope of an activation."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..array_module import per_model

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
_ONE_FOR_ALL = (float, int, type(None), bool)
_SHARED_IF_FLAT = "weight"  # `[C]` is a weight of the classes that all models share


def takes_own_numbers(*names: str) -> Callable[[FunctionT], FunctionT]:
    """Let the arguments `names` of a function on `[B, ...]` be a number for all models or a sequence of B numbers.

    Equal numbers are one number. Others are computed model by model, which gives each model the bits of a call of its
    own; what is computed before and after stays fused.
    """

    def decorate(function: FunctionT) -> FunctionT:
        signature = inspect.signature(function)
        places = [(name, list(signature.parameters).index(name)) for name in names]

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for name, place in places:
                value = args[place] if place < len(args) else kwargs.get(name)
                if type(value) not in _ONE_FOR_ALL:
                    break
            else:
                return function(*args, **kwargs)
            given = signature.bind(*args, **kwargs).arguments
            B = len(next(value for value in given.values() if isinstance(value, Tensor)))
            own: dict[str, Any] = {name: per_model(given[name], B, name) for name in names if _is_own(name, given)}
            own |= {name: values[0] for name, values in own.items() if values and len(set(values)) == 1}
            several = [name for name, values in own.items() if isinstance(values, list)]
            if not several or not B:
                return function(**given | {name: own[name] or 0.0 for name in several} | own)
            return torch.cat([function(**of_model) for of_model in _of_models(given | own, several, B)])

        call.own_numbers = frozenset(names)  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate


def _is_own(name: str, given: dict[str, Any]) -> bool:
    return name in given and type(given[name]) not in _ONE_FOR_ALL


def _of_models(given: dict[str, Any], several: list[str], B: int) -> Iterator[dict[str, Any]]:
    """Split the arguments of B models; the gradient of `split` is one tensor, of B slices it would be B."""

    def each(name: str, value: Any) -> Sequence[Any]:
        if name in several:
            return value
        whole = not isinstance(value, Tensor) or not value.dim() or len(value) != B
        return [value] * B if whole or (name == _SHARED_IF_FLAT and value.dim() == 1) else value.split(1)

    columns = {name: each(name, value) for name, value in given.items()}
    for index in range(B):
        yield {name: values[index] for name, values in columns.items()}
