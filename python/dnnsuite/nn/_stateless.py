# SPDX-License-Identifier: MIT
"""Layers without parameters; torch's constructor checks their arguments."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from . import functional
from .array_module import ArrayModule, check_models


class Stateless(ArrayModule):
    """Layer that is a function of its input and of `arguments`, torch's constructor arguments in order.

    `function` is its name in `dnnsuite.nn.functional`; its parameters after the input have the arguments' names.
    """

    arguments: ClassVar[tuple[str, ...]] = ()
    function: ClassVar[str]

    def __init__(self, *args: Any, B: int, **kwargs: Any) -> None:
        super().__init__(B)
        plain = type(self).torch_class(*args, **kwargs)  # checks the arguments and fills in torch's defaults
        for name in self.arguments:
            setattr(self, name, getattr(plain, name))

    def forward(self, x: torch.Tensor) -> Any:
        check_models(x, self.B, type(self).__name__)
        return getattr(functional, self.function)(x, **self.arguments_of(self))
