# SPDX-License-Identifier: MIT
"""Layers whose arguments, parameters and initial values are those that torch's constructor gives a layer."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch

from ..errors import InvalidArgument
from ..ops.array_layers import of_one_model
from .array_module import ArrayModule, Undrawn, public_arguments, skips_initial_values


@functools.lru_cache(maxsize=128)
def signature_of(kind: Any) -> inspect.Signature:
    """Return the arguments of a class of torch's layers that are those of any model."""
    return public_arguments(inspect.signature(kind))


class Parametric(ArrayModule):
    """Layer of B models that takes the constructor of `torch_class`: torch's layer of one model, on the meta device,
    checks the arguments and says which parameters there are."""

    def __init__(self, *args: Any, B: int, **kwargs: Any) -> None:
        super().__init__(B)
        given: dict[str, Any] = signature_of(type(self).torch_class).bind(*args, **kwargs).arguments
        device = given.pop("device", None)
        plain = self._of_torch(**given)
        self._take(plain, device)
        if not skips_initial_values():
            self.__dict__["_torchs"] = plain
            self.reset_parameters()
            self.__dict__.pop("_torchs", None)

    @classmethod
    def _of_torch(cls, device: Any = "meta", **arguments: Any) -> Any:
        """Make torch's layer of one model, without initial values."""
        try:
            with Undrawn():
                return cls.torch_class(**arguments, device=device)
        except (ValueError, AssertionError) as error:
            given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
            raise InvalidArgument(f"{cls.__name__}({given}): {error}") from None

    def _take(self, plain: Any, device: Any) -> None:
        """Take the arguments of `plain`, and register its parameters `[B, ...]`."""
        for name in (*(self.arguments or ()), *self.per_model_arguments):
            if name not in plain._parameters:
                setattr(self, name, getattr(plain, name))
        for name, one in plain._parameters.items():
            made = None if one is None else torch.empty(self.B, *one.shape, dtype=one.dtype, device=device)
            self.register_parameter(name, None if made is None else torch.nn.Parameter(self.laid_out(made)))

    @classmethod
    def laid_out(cls, weight: torch.Tensor) -> torch.Tensor:
        """Lay a parameter `[B, ...]` out in the memory order that its device computes in."""
        return weight

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise one model after the other as torch does, so that B layers made one by one from the same seed are
        equal."""
        one = self.__dict__.pop("_torchs", None) or self._of_torch(**self.arguments_of(self))
        held = {name: value for name, value in self._parameters.items() if value is not None}
        if next(iter(held.values())).is_meta:
            return
        with of_one_model():
            for parts in zip(*(value.unbind() for value in held.values()), strict=True):
                for name, part in zip(held, parts, strict=True):
                    # Numbers are drawn in the order of the memory: a part that lies otherwise takes a copy.
                    one._parameters[name] = part if part.is_contiguous() else part.new_empty(part.shape)
                one.reset_parameters()
                for name, part in zip(held, parts, strict=True):
                    if one._parameters[name] is not part:
                        part.copy_(one._parameters[name])
