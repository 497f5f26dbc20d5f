# SPDX-License-Identifier: MIT
"""Layers without parameters; torch's constructor checks their arguments."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import torch

from . import functional
from .array_module import ArrayModule, check_models


def of_dimensions(base: type, stem: str, functions: str = "", **attributes: Any) -> list[Any]:
    """Make the layers of lines, images and volumes that are called `stem` and 1d, 2d, 3d, and so are their functions in
    `dnnsuite.nn.functional` by `functions`."""
    made = []
    for dims in ("1d", "2d", "3d"):
        own = attributes | ({"function": functions + dims} if functions else {})
        names = {"__module__": base.__module__, "__qualname__": stem + dims}
        made.append(type(base)(stem + dims, (base,), names, **own))
    return made


class Stateless(ArrayModule):
    """Layer that is a function of its input and of torch's constructor arguments.

    `arguments` are these, in order. `function` is its name in `dnnsuite.nn.functional`; its parameters after the inputs
    have the arguments' names.
    """

    arguments: ClassVar[tuple[str, ...]] = ()
    function: ClassVar[str]

    def __init_subclass__(cls, **attributes: Any) -> None:
        super().__init_subclass__(**attributes)
        if "torch_class" in cls.__dict__:
            cls.arguments = tuple(inspect.signature(cls.torch_class).parameters)

    def __init__(self, *args: Any, B: int, **kwargs: Any) -> None:
        super().__init__(B)
        plain = type(self).torch_class(*args, **kwargs)  # checks the arguments and fills in torch's defaults
        for name in self.arguments:
            setattr(self, name, getattr(plain, name))

    def forward(self, *inputs: torch.Tensor) -> Any:
        check_models(inputs[0], self.B, type(self).__name__)
        return getattr(functional, self.function)(*inputs, **self.arguments_of(self))
