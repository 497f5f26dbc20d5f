# SPDX-License-Identifier: MIT
"""Rules of `torch.nn.functional`: our function of the same name, on `[B, ...]`."""

from __future__ import annotations

import inspect
from typing import Any

from torch.nn import functional

from ...nn import functional as ours
from ...nn.model_tensor import ModelTensor, wrap_all
from ...nn.waiting_relu import input_of_relu
from .random import next_stream
from .table import FINDERS, FunctionRule, arguments, settle, width_of


def layer_rule(func: Any) -> FunctionRule | None:
    """Find the rule of a function of torch.nn.functional that `dnnsuite.nn.functional` has too."""
    name = getattr(func, "__name__", "")
    if name == "_scaled_dot_product_attention" or getattr(functional, name, None) is not func:
        return None
    mine = getattr(ours, name, None)
    if mine is None or mine is func or name not in ours.__all__:
        return None
    pools = name in ("max_pool1d", "max_pool2d")
    draws = "rng" in inspect.signature(mine).parameters

    def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        B = width_of(args, kwargs)
        if pools and not kwargs.get("return_indices") and len(args) < 7 and type(args[0]) is ModelTensor:
            before = input_of_relu(args[0].deferred)
            if before is not None:
                return wrap_all(ours.max_pool_of_relu(mine, before, *args[1:], **kwargs))
        if kwargs.get("inplace"):
            settle()
        args, kwargs = arguments((args, kwargs), B)
        if draws:
            kwargs["rng"] = next_stream(B)
        return wrap_all(mine(*args, **kwargs))

    return call


FINDERS.append(layer_rule)
