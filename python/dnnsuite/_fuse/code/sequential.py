# SPDX-License-Identifier: MIT
"""`torch.nn.Sequential` in an array: a layer and the activation after it run as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...errors import InvalidArgument
from ...nn import MaxPool1d, MaxPool2d, functional
from ...nn.array_module import ArrayModule
from ...nn.model_tensor import ModelTensor, outside
from ...nn.own_tensors import OwnTensors
from ...ops.library import is_read_by_backward
from ...ops.shared import is_shared, once
from .epilogue_fusion import activation_of, has_torchs_forward

#: Activations whose functions are ours, by torch's class.
_OURS: dict[type[torch.nn.Module], Callable[[Any, torch.Tensor], torch.Tensor]] = {
    torch.nn.Tanh: lambda m, x: functional.tanh(x),
    torch.nn.GELU: lambda m, x: functional.gelu(x, m.approximate),
    torch.nn.Mish: lambda m, x: functional.mish(x),
    torch.nn.Softplus: lambda m, x: functional.softplus(x, m.beta, m.threshold),
    torch.nn.ELU: lambda m, x: functional.elu(x, m.alpha),
    torch.nn.SELU: lambda m, x: functional.selu(x),
}


def _is_ours(module: Any) -> bool:
    return type(module) in _OURS and has_torchs_forward(module) and not _hooked(module)


class Sequential(OwnTensors, torch.nn.Sequential):
    """Container with the parts of the user's Sequential."""

    def forward(self, x: Any) -> Any:
        modules = list(self._modules.values())
        if any(module._backward_hooks or module._backward_pre_hooks for module in modules):
            raise InvalidArgument(
                "there is a backward hook on a layer of a Sequential, which is not called inside of fused models: look "
                "at array.parameters(), or call array.per_model(name) with the name of a module around it"
            )
        place = 0
        while place < len(modules):
            module: Any = modules[place]
            after = modules[place + 1] if place + 1 < len(modules) else None
            place += 1
            if _is_relu_of_its_own(module, modules[: place - 1]) and not _hooked(module, after):
                pooled = _pooled(after, x)
                if pooled is not None:
                    x = pooled
                    place += 1
                    continue
            wanted = None
            if isinstance(module, ArrayModule) and module.activations and type(x) is not ModelTensor:
                wanted = None if after is None or _hooked(module, after) else activation_of(after)
            if wanted is not None and wanted[0] in module.activations:
                x = module.activated(x, *wanted)
                place += 1
            elif _writes_into_its_input(module):
                x = _written(module, x)
            elif type(x) is torch.Tensor and _is_ours(module):
                x = _OURS[type(module)](module, x)
            else:
                x = module(x)
        return x


def _writes_into_its_input(module: torch.nn.Module) -> bool:
    """Return True for an activation of torch's in place."""
    return bool(getattr(module, "inplace", False)) and not isinstance(module, ArrayModule)


def _written(activation: Any, x: Any) -> Any:
    """Run an activation in place: on what all models share once, or on a copy where gradients need what was there."""
    if type(x) is ModelTensor:
        kept = x.deferred is None and (is_shared(x.value) or is_read_by_backward(x.value))
        return activation(x.clone() if kept else x)
    if type(x) is not torch.Tensor:
        return activation(x)
    if is_shared(x):
        return activation(x.contiguous()) if x.requires_grad else once(activation, x)
    return activation(x.clone() if is_read_by_backward(x) else x)


def _is_relu_of_its_own(module: Any, before: list[Any]) -> bool:
    """Return True for a ReLU that may leave its input as it is: not in place, or on a layer's output that only it
    reads."""
    if type(module) is not torch.nn.ReLU or not has_torchs_forward(module):
        return False
    made = bool(before) and isinstance(before[-1], ArrayModule) and len(before[-1]._parameters) > 0
    return not module.inplace or made


def _pooled(after: Any, x: Any) -> Any:
    """Compute a ReLU of x and the pooling `after` it in one pass; None if it is none, or x waits for the ReLU."""
    if not isinstance(after, (MaxPool1d, MaxPool2d)) or after.return_indices:
        return None
    if type(x) is not ModelTensor:
        return after.after_relu(x)
    if x.deferred is not None:
        return None
    with outside():
        return ModelTensor(after.after_relu(x.value))


def _hooked(*modules: torch.nn.Module | None) -> bool:
    own = (m for m in modules if m is not None)
    return any(m._forward_hooks or m._forward_pre_hooks or "forward" in vars(m) for m in own)
