# SPDX-License-Identifier: MIT
"""Reads of a tensor's values that bypass torch's dispatcher: `tolist`, and memory shared with NumPy."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ...nn.model_tensor import ModelTensor
from .places import called_by_user
from .record import StepRecording

_MANY = 64  # elements of a list that are compared in each step
_LISTS = frozenset((torch.Tensor.tolist,))
_MEMORY = frozenset((torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.__dlpack__))


class HiddenReads(TorchFunctionMode):
    """Function mode that makes hidden reads of a user's code visible to the recorder, or refuses them."""

    def __init__(self, recording: StepRecording) -> None:
        super().__init__()
        self._recording = recording

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _MEMORY or func in _LISTS:
            place = called_by_user()
            if place is not None:
                self._note(func, args[0], place)
        return func(*args, **(kwargs or {}))

    def _note(self, func: Any, tensor: torch.Tensor, place: str) -> None:
        value = tensor.value[0] if type(tensor) is ModelTensor else tensor
        if func in _MEMORY or value.numel() > _MANY:
            self._recording.refuse(f"Tensor.{func.__name__} hands a tensor's values to Python{place}")
            return
        for element in value.detach().flatten().unbind():
            element.item()
