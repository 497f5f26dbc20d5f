# SPDX-License-Identifier: MIT
"""Parameters of B models lent to B plain modules, and their gradients joined again."""

from __future__ import annotations

import collections
import functools
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..._torch import TorchDispatchMode, hidden_from_function_modes, transforming, tree_map
from ...errors import InvalidArgument
from ...nn.sharing import is_shared
from ...ops.array_layers import join_gradients, note_partly_used
from ...ops.library import applied

TOGETHER_BYTES = 1 << 24  # of parameters whose gradients are held until all models have theirs


class _Lent(torch.autograd.Function):
    """Views of each model's part of stacked parameters; model i's gradient becomes row i of the stacked one."""

    @staticmethod
    def forward(ctx: Any, apart: bool, *stacked: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.stacked, ctx.B = stacked, stacked[0].size(0)
        return tuple(part for parameter in stacked for part in _views(parameter, apart))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[Any, ...]:
        parts = [grads[at : at + ctx.B] for at in range(0, len(grads), ctx.B)]
        return None, *map(join_gradients, ctx.stacked, parts)


_lend = applied(_Lent)


def _views(parameter: torch.Tensor, apart: bool) -> Sequence[torch.Tensor]:
    """View each model's part; `apart` gives each a version counter of its own, for code that writes into it.

    Parameters with another memory order are copied, or torch's layers would give results in that order too.
    """
    whole = parameter.detach()
    now = whole.stride()
    wanted = _torchs_strides(whole.shape, now)
    if wanted is None:
        parts = whole.contiguous().unbind(0)
    else:
        parts = (whole if wanted == now else whole.as_strided(whole.shape, wanted)).unbind(0)
    return [part.data for part in parts] if apart else parts


@functools.lru_cache(maxsize=4096)
def _torchs_strides(shape: torch.Size, now: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the strides `now` of `[B, ...]` as torch gives them to dimensions of size 1; None in another memory order.

    From the strides of a filter of one input channel torch would read that its result is to be channels last.
    """
    strides: list[int] = []
    step = 1
    for size in reversed(shape[1:]):
        strides.insert(0, step)
        step *= size
    in_order = all(a == b for size, a, b in zip(shape[1:], strides, now[1:], strict=True) if size != 1)
    return (now[0], *strides) if in_order or not step else None


def lent(stacked: Sequence[torch.Tensor], apart: bool = False) -> list[Sequence[torch.Tensor]]:
    """Give each of the `stacked` `[B, ...]` as B tensors through which gradients reach it.

    Args:
        apart: the tensors may be written into without autograd taking it for a change of the others.
    """
    if transforming():
        return [parameter.unbind(0) for parameter in stacked]
    takes = [torch.is_grad_enabled() and parameter.requires_grad for parameter in stacked]
    found: list[Any] = [None if grad else _views(p, apart) for p, grad in zip(stacked, takes, strict=True)]
    waiting = [place for place, grad in enumerate(takes) if grad]
    while waiting:
        group, size = list[int](), 0  # parameters that are small together
        while waiting and size <= TOGETHER_BYTES:
            group.append(waiting.pop(0))
            size += stacked[group[-1]].nbytes
        parts = _lend(apart, *(stacked[place] for place in group))
        B = stacked[group[0]].size(0)
        for number, place in enumerate(group):
            found[place] = parts[number * B : number * B + B]
    return found


def put_at(module: torch.nn.Module, names: str, name: str, value: torch.Tensor) -> None:
    """Replace a parameter or buffer, also where the module holds it in a plain list (as torch's RNNs do)."""
    held = getattr(module, names)
    for attribute in vars(module).values():
        if type(attribute) is list:
            for place, item in enumerate(attribute):
                if item is held[name]:
                    attribute[place] = value
    held[name] = value


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
                own = self._own[id(part)] = _Own(part, parameter, index, flag)
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
                f"the forward lets a parameter {list(own.part.shape)} take a gradient that all models share: "
                "call requires_grad_() before the forward"
            )
        own.takes = flag
        (self._frozen.discard if flag else self._frozen.add)(id(own.part))
        return own.part


def gives_own_memory(func: Any, args: Sequence[Any]) -> bool:
    """Return True for a call that gives a tensor the memory that it has: no write, but torch counts it as one. So torch
    registers a parametrization, and PEFT does that in each forward for adapters of a parameter."""
    return func is torch.ops.aten.set_.source_Tensor and args[0] is args[1]


class OwnMemory(TorchDispatchMode):
    """Dispatch mode that counts how often each tensor was given the memory that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.times: collections.Counter[int] = collections.Counter()  # by id

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if gives_own_memory(func, args):
            self.times[id(args[0])] += 1
        return func(*args, **(kwargs or {}))


def let_take(parameters: Sequence[torch.Tensor]) -> list[bool]:
    """Let all `parameters` take gradients for a call whose code may flip their flags; return the flags."""
    before = [parameter.requires_grad for parameter in parameters]
    for parameter in parameters:
        if parameter.is_leaf and parameter.is_floating_point() and not is_shared(parameter):
            parameter.requires_grad_()
    return before
