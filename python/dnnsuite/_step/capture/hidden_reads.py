# SPDX-License-Identifier: MIT
"""Reads and hand-overs of a user's code while a step is recorded, made visible to the recorder, or refused.

A float that Python reads of a tensor becomes a stand-in (`arithmetic.py`), so that a replay decides by it as Python
would. A stand-in for a number that is known before the step is handed to torch as a number that occurs nowhere else,
wherever torch's formula is the same for any number: an argument of an operator with this value is an input of the
recording. Elsewhere torch gets the number itself, which becomes a condition.
"""

from __future__ import annotations

import gc
import math
import random
import types
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..._thawed import thawed
from ..._torch import tree_map
from ...nn.model_tensor import ModelTensor
from .arithmetic import Source, Trace
from .record import StepRecorder
from .stand_ins import FollowedNumber, plain
from .unseen import called_by_user

_MANY_READ = 64  # elements of a list that are compared in each step
_MEMORY = frozenset((torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.__dlpack__))
_READS = frozenset((torch.Tensor.item, torch.Tensor.tolist, *_MEMORY))
_ARITHMETIC = ("add", "sub", "mul", "truediv", "div", "rtruediv", "rdiv", "radd", "rsub", "rmul")
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_FUNCTIONS = (
    *("add", "sub", "subtract", "rsub", "mul", "multiply", "div", "divide", "true_divide"),
    *("clamp", "clip", "clamp_min", "clamp_max", "lerp", "addcmul", "addcdiv", "masked_fill", "where"),
    *("leaky_relu", "elu", "celu", "smooth_l1_loss", "huber_loss"),
    *("fill", "full", "full_like", "new_full", "greater", "greater_equal", "less", "less_equal", "not_equal"),
)
#: Functions of torch whose result is the same formula for any number, 0, 1 and -1 aside.
_SAME_FOR_ALL = frozenset(
    [
        *(f"__{name}__" for name in (*_ARITHMETIC, *_COMPARISONS, "iadd", "isub", "imul", "itruediv", "idiv")),
        *(name for base in (*_FUNCTIONS, *_COMPARISONS) for name in (base, f"{base}_")),
        "gumbel_softmax",
    ]
)


def is_special(value: Any) -> bool:
    """Return True for numbers that torch treats specially, such as 0 and 1: they are conditions of a recording, not
    inputs."""
    return bool(value in (0, 1, -1) or not math.isfinite(value))


class HiddenReads(TorchFunctionMode):
    """Function mode of a recorded step.

    Args:
        trace: trace of the numbers that the step begins with; by default of none.
    """

    def __init__(self, recorder: StepRecorder, trace: Trace | None = None) -> None:
        super().__init__()
        self._recorder, self._recording = recorder, recorder.recording
        self._trace = trace or Trace(recorder.recording)
        self._random = random.Random(0)
        recorder.hand = self._handed_to  # in a backward pass torch has put this mode aside

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        left = self._recorder.leave_if_in_vain()
        if self._trace.any and _holds_a_stand_in((args, kwargs)):
            args, kwargs = tree_map(partial(self._handed_to, getattr(func, "__name__", "")), (args, kwargs))
        if func in _READS and not left:
            place = called_by_user()
            if place is not None and not kwargs and len(args) == 1:
                return self._read(func, args[0], place)
        return func(*args, **kwargs)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """End the step, with the garbage that it has made. A float that was read and is still held would be another
        number after the next step: the recording is refused, and the float put in the place of its stand-in."""
        super().__exit__(kind, error, trace)
        if kind is None and self._trace.held():
            gc.collect()  # circles of objects that nobody holds
        self._trace.open = False  # after an error its frames hold what they will
        numbers = self._trace.held() if kind is None else []
        if numbers:
            for number in numbers:
                self._trace.refuse(number)
            del number
            _put_values(numbers)
            numbers.clear()
            if self._trace.held() and gc.get_freeze_count():  # what is frozen may be most of a process
                with thawed():
                    _put_values(self._trace.held())

    def _handed_to(self, name: str, value: Any) -> Any:
        """Return a number in the place of a stand-in among the arguments of a function."""
        return self._handed_over(value) if name in _SAME_FOR_ALL else _read_as_it_is(value)

    def _handed_over(self, value: Any) -> Any:
        """Return a number in the place of a stand-in that tells the recorder of it."""
        if type(value) is not FollowedNumber:
            return value
        if value.trace is not self._trace or type(value.index) is Source or is_special(value.value):
            return _read_as_it_is(value)
        handed, whole = self._recorder.handed, isinstance(value.value, int)
        while True:
            near = 1 + self._random.random() * 1e-3
            number = value.value + self._random.randrange(10**6) if whole else float(value.value) * near
            if number not in handed and number != value.value:
                handed[number] = value.index
                return number

    def _read(self, func: Any, tensor: torch.Tensor, place: str) -> Any:
        if func is torch.Tensor.item:
            return self._item(tensor, place)
        value = tensor.value[0] if type(tensor) is ModelTensor else tensor
        if func in _MEMORY or value.numel() > _MANY_READ:
            self._recording.refuse(f"Tensor.{func.__name__} hands a tensor's values to Python{place}")
        elif value.is_floating_point() and value.dim() < 2:
            func(tensor)  # all models agree, or an error
            elements = value.detach()
            if not value.dim():
                return self._item(elements, place)
            return [self._item(element, place) for element in elements.unbind()]
        else:
            for element in value.detach().flatten().unbind():
                element.item()
        return func(tensor)

    def _item(self, tensor: torch.Tensor, place: str) -> Any:
        """Read one element; a float that depends on the batch becomes a stand-in."""
        with self._recorder.follows_floats():
            value = torch.Tensor.item(tensor)
        taken = self._recorder.taken
        return value if taken is None else self._trace.read_of(taken, value, place)


def _read_as_it_is(value: Any) -> Any:
    return value.trace.read(value) if type(value) is FollowedNumber else value


def _holds_a_stand_in(value: Any) -> bool:
    """Return True for arguments of a function with a number that is followed."""
    if type(value) in (tuple, list):
        return any(map(_holds_a_stand_in, value))
    if type(value) is dict:
        return any(map(_holds_a_stand_in, value.values()))
    return type(value) is FollowedNumber


def _put_values(numbers: Sequence[FollowedNumber]) -> None:
    """Put the values of stand-ins that are still held in their places, wherever an object of Python's holds one."""
    ids = set(map(id, numbers))
    for holder in gc.get_referrers(*numbers):
        if isinstance(holder, types.FrameType) or holder is numbers:
            continue
        if isinstance(holder, types.CellType):
            holder.cell_contents = plain(holder.cell_contents)
            continue
        held = holder if isinstance(holder, (dict, list, deque)) else getattr(holder, "__dict__", None)
        if held is not None:
            for key, value in list(held.items() if isinstance(held, dict) else enumerate(held)):
                if id(value) in ids:
                    held[key] = value.value
