# SPDX-License-Identifier: MIT
"""Every layer of `dnnsuite.nn` as rows of a table: what to make, and what one model's input looks like.

Each file of this folder has a list `CASES` for one family of layers; `test_equality.py` runs them all.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st


@dataclass(frozen=True)
class Example:
    """One layer with one shape. `make()` builds a torch layer (its parameters from torch's generator); `inputs()` one
    model's inputs, floating ones float32 (the test casts them), all of the same shapes at each call. An input may be a
    tuple of tensors (an LSTM's state); `keywords` go to `forward` as they are."""

    make: Callable[[], torch.nn.Module]
    inputs: Callable[[], tuple[Any, ...]]
    keywords: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """`examples` draws random shapes and arguments. What torch itself cannot do for the layer is switched off.

    `known_failures` says why a check is expected to fail: the name of a test of `test_equality.py` without `test_`,
    or that with a dtype ("values-bf16"), to the reason. Such a check must fail: whoever mends it deletes the entry.
    """

    name: str
    examples: st.SearchStrategy[Example]
    double_backward: bool = True
    bf16: bool = True
    exact: bool = True  # float32: model i has the same bits for every B and slot
    bf16_tolerance: float = 4e-2
    known_failures: Mapping[str, str] = field(default_factory=dict)


def all_cases() -> list[Case]:
    """The cases of every file in this folder, in the order of the files' names."""
    modules = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return [case for name in modules for case in importlib.import_module(f"{__name__}.{name}").CASES]
