# SPDX-License-Identifier: MIT
"""Reads of a tensor's values that bypass torch's dispatcher: `tolist`, memory shared with NumPy, and what Python does
with a float."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ...nn.model_tensor import ModelTensor
from .places import called_by_user
from .read_floats import ReadFloats
from .record import StepRecorder

_MANY = 64  # elements of a list that are compared in each step
_LISTS = frozenset((torch.Tensor.tolist,))
_MEMORY = frozenset((torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.__dlpack__))
_READS = frozenset((torch.Tensor.item, *_LISTS, *_MEMORY))


class HiddenReads(TorchFunctionMode):
    """Function mode that makes hidden reads of a user's code visible to the recorder, or refuses them; floats that it
    reads become stand-ins."""

    def __init__(self, recorder: StepRecorder) -> None:
        super().__init__()
        self._recorder, self._recording = recorder, recorder.recording
        self._floats = ReadFloats(recorder.recording)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._floats.made:
            args, kwargs = self._floats.plain((args, kwargs))
        if func in _READS:
            place = called_by_user()
            if place is not None and not kwargs and len(args) == 1:
                return self._read(func, args[0], place)
        return func(*args, **kwargs)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        super().__exit__(kind, error, trace)
        self._floats.end(failed=kind is not None)

    def _read(self, func: Any, tensor: torch.Tensor, place: str) -> Any:
        if func is torch.Tensor.item:
            return self._item(tensor, place)
        value = tensor.value[0] if type(tensor) is ModelTensor else tensor
        if func in _MEMORY or value.numel() > _MANY:
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
        return value if taken is None else self._floats.stand_in(taken, value, place)
