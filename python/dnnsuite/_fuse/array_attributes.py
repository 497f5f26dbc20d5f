# SPDX-License-Identifier: MIT
"""Attributes of an array that are set from outside: of its models, or of the array alone."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import InvalidArgument
from ..nn.array_module import ArrayModule
from .code.fused_attributes import is_fused
from .code.own_values import names_of_own
from .layer_table import CONTAINERS, ELEMENTWISE
from .single_model import parts_of

__all__ = ["check_of_all_models", "models_have", "models_set", "registered"]


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
            known = (
                isinstance(part, ArrayModule) or type(part) in (*ELEMENTWISE, *CONTAINERS) or is_fused(part)
            )
            if not known or getattr(part, "_fused_B", getattr(part, "B", B)) != B:
                raise InvalidArgument(
                    f"array.{name}: a {type(part).__name__} is not a layer of {B} models: give one of dnnsuite.nn with "
                    f"B={B}, or change the models and fuse them anew"
                )
    elif isinstance(value, torch.Tensor) and (value.dim() == 0 or value.size(0) != B):
        raise InvalidArgument(
            f"array.{name} is that of {B} models, [{B}, ...]; got {list(value.shape)}: torch.stack the models' values"
        )
