# SPDX-License-Identifier: MIT
"""Attributes of an array that are set from outside, of its models or of it alone, and its `forward` as theirs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from ..errors import InvalidArgument
from ..nn.array_module import ArrayModule
from .code.own_values import bare_class, is_fused, names_of_own
from .layer_table import CONTAINERS, ELEMENTWISE
from .single_model import parts_of


def registered(root: torch.nn.Module) -> set[str]:
    """Names of the parameters, buffers and modules that `root` itself holds."""
    return {*root._parameters, *root._buffers, *root._modules}


def models_have(root: torch.nn.Module, name: str) -> bool:
    """True if the models have the attribute, alike or each its own."""
    return hasattr(root, name) or name in root.__dict__.get("_fused_withheld", ())


def models_set(root: torch.nn.Module, name: str) -> bool:
    """True if the models themselves hold the attribute; its name may be that of a method, as `self.drop = 0.1`."""
    return name in vars(root) or name in registered(root) or name in names_of_own(root)


def check_of_all_models(name: str, value: Any, B: int) -> None:
    """Refuse a layer or tensor without a dimension for B models."""
    if isinstance(value, torch.nn.Module):
        for part in parts_of(value):
            known = isinstance(part, ArrayModule) or type(part) in (*ELEMENTWISE, *CONTAINERS) or is_fused(part)
            if not known or getattr(part, "_fused_B", getattr(part, "B", B)) != B:
                raise InvalidArgument(
                    f"array.{name}: a {type(part).__name__} is not a layer of {B} models: give one of dnnsuite.nn with "
                    f"B={B}, or change the models and fuse them again"
                )
    elif isinstance(value, torch.Tensor) and (value.dim() == 0 or value.size(0) != B):
        raise InvalidArgument(
            f"array.{name} is that of {B} models, [{B}, ...]; got {list(value.shape)}: torch.stack the models' values"
        )


def check_state(array: torch.nn.Module, state: Any) -> None:
    """Refuse the `state_dict` of a single model: its tensors have all dimensions of the array's but the first."""
    own = dict(array.named_parameters())
    shapes = [(p.shape[1:], state[name].shape) for name, p in own.items() if hasattr(state.get(name), "shape")]
    if shapes and all(ours == theirs for ours, theirs in shapes):
        raise InvalidArgument(
            "this is the state_dict of one model: load it into a plain model, and put that into the array with "
            "array.replace(i, model), or fuse models that have loaded theirs"
        )


class ForwardOfModels:
    """Method of an array that `inspect.signature` shows with the arguments of its models' `forward`.

    transformers' `Trainer` leaves out of a batch what is no argument of its model.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self.__doc__ = function, function.__doc__

    def __get__(self, array: Any, owner: Any = None) -> Callable[..., Any]:
        if array is None:
            return self._function
        shown = "_root" in array.__dict__ and not torch.compiler.is_compiling()  # which looks into a plain one
        return (_Forward if shown else functools.partial)(self._function, array)


class _Forward(functools.partial[Any]):
    """Method of one array."""

    @property
    def __self__(self) -> torch.nn.Module:
        array: torch.nn.Module = self.args[0]
        return array

    @property
    def __signature__(self) -> inspect.Signature:
        root = self.__self__.__dict__["_root"]
        own = root.__dict__.get("forward")
        kind: Any = bare_class(root)
        try:
            found = inspect.signature(kind.forward if own is None else own)
        except (TypeError, ValueError):  # code that Python cannot look into
            raise AttributeError("__signature__") from None
        return found if own is not None else found.replace(parameters=[*found.parameters.values()][1:])
