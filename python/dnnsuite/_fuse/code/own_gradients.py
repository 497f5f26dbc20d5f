# SPDX-License-Identifier: MIT
"""Code of plain models that works with its parameters' gradients: flips `requires_grad`, reads or clears `.grad`.

Each model's parameter is a view of the array's `[B, ...]`, so neither its flag nor its gradient is its own. A function
mode answers for it as a parameter of a single model would.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..._torch import hidden_from_function_modes, tree_map
from ...errors import InvalidArgument
from ...nn.sharing import is_shared
from ...ops.partial_use import note_partly_used, source_of

_TENSOR: Any = torch.Tensor
_FLAGS = frozenset((_TENSOR.requires_grad_, _TENSOR.requires_grad.__set__))
_FLAG = _TENSOR.requires_grad.__get__
_LEAF = _TENSOR.is_leaf.__get__
_NODE = _TENSOR.grad_fn.__get__
_GRADIENT = _TENSOR.grad.__get__
_SET_GRADIENT = _TENSOR.grad.__set__
_DROP_GRADIENT = _TENSOR.grad.__delete__
_OF_TENSORS = frozenset((_FLAG, _LEAF, _NODE, _GRADIENT, _SET_GRADIENT, _DROP_GRADIENT, *_FLAGS))


class _Own:
    """One model's parameter: row `index` of `whole`, a leaf `[B, ...]`."""

    def __init__(self, part: torch.Tensor, whole: torch.Tensor, index: int, takes: bool) -> None:
        self.part, self.whole, self.index, self.takes = part, whole, index, takes
        self.reached = whole.grad is not None  # a gradient of this model's is in the row
        self.plain = part.detach()

    def reach(self, gradient: torch.Tensor) -> None:
        """Note that a backward pass comes by."""
        self.reached = True

    def gradient(self) -> torch.Tensor | None:
        """View the model's gradient; None if it has none."""
        grad = self.whole.grad
        return grad.data[self.index].data if self.reached and grad is not None else None

    def set_gradient(self, value: torch.Tensor | None) -> None:
        """Put `value` in the gradient's place; -0.0 says that the model has none."""
        self.reached = value is not None
        if self.whole.grad is None and value is not None:
            self.whole.grad = torch.full_like(self.whole, -0.0)
        if self.whole.grad is not None:
            row = self.whole.grad.data[self.index]
            row.fill_(-0.0) if value is None else row.copy_(value.detach())
            note_partly_used(self.whole)


class OwnGradients(TorchFunctionMode):
    """Function mode: a frozen parameter is a constant, and `.grad` is the model's row of the array's gradient.

    Args:
        stacked: the array's parameters, and what each is lent as, one tensor for each model.
        takes: True for those that took a gradient before the call.
    """

    def __init__(
        self, stacked: Sequence[torch.Tensor], lent: Sequence[Sequence[torch.Tensor]], takes: Sequence[bool]
    ) -> None:
        super().__init__()
        self._own: dict[int, _Own] = {}
        for parameter, parts, flag in zip(stacked, lent, takes, strict=True):
            for index, part in enumerate(parts):
                whole, row = source_of(parameter) or (parameter, index)
                own = self._own[id(part)] = _Own(part, whole, row, flag)
                if part.requires_grad:
                    part.register_hook(own.reach)
        self._frozen = {key for key, own in self._own.items() if not own.takes}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the array's parameters the flags that the models' code has left."""
        super().__exit__(kind, error, trace)
        wholes = {id(own.whole): own.whole for own in self._own.values()}
        taking = {id(own.whole) for own in self._own.values() if own.takes}
        for key, whole in wholes.items():
            if whole.is_leaf and whole.requires_grad != (key in taking):
                whole.requires_grad_(key in taking)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _OF_TENSORS:
            own = self._own.get(id(args[0]))
            if own is not None:
                with hidden_from_function_modes():
                    return self._answer(own, func, args, kwargs)
        elif self._frozen:
            args, kwargs = tree_map(self._seen, (args, kwargs))
        return func(*args, **kwargs)

    def _seen(self, value: Any) -> Any:
        return self._own[id(value)].plain if id(value) in self._frozen else value

    def _answer(self, own: _Own, func: Any, args: Any, kwargs: Any) -> Any:
        if func in _FLAGS:
            return self._set_flag(own, bool([*args[1:], *kwargs.values(), True][0]))
        if func == _FLAG:
            return own.takes
        if func == _LEAF:
            return True
        if func == _GRADIENT:
            return own.gradient()
        if func in (_SET_GRADIENT, _DROP_GRADIENT):
            own.set_gradient(args[1] if func == _SET_GRADIENT else None)
        return None  # a leaf has no node

    def _set_flag(self, own: _Own, flag: bool) -> torch.Tensor:
        if flag and not own.part.requires_grad and torch.is_grad_enabled():
            raise InvalidArgument(
                f"the forward lets a parameter {list(own.part.shape)} take a gradient that all models share, or that "
                "is frozen in code that draws random numbers: call requires_grad_() before the forward"
            )
        own.takes = flag
        (self._frozen.discard if flag else self._frozen.add)(id(own.part))
        return own.part


def let_take(parameters: Sequence[torch.Tensor]) -> list[bool]:
    """Let all `parameters` take gradients for a call whose code may flip their flags; return the flags."""
    before = [parameter.requires_grad for parameter in parameters]
    for parameter in parameters:
        split = (
            source_of(parameter) is not None
        )  # no gradient of it would reach the parameter it is a part of
        if parameter.is_leaf and parameter.is_floating_point() and not split and not is_shared(parameter):
            parameter.requires_grad_()
    return before
