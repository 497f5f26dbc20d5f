# SPDX-License-Identifier: MIT
"""Epilogue fusion: an activation, and a sum before it, computed in the pass of the layer that they follow; and
`torch.nn.Sequential` in an array, in which a layer and the activation after it run as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...errors import InvalidArgument
from ...nn import MaxPool1d, MaxPool2d, functional
from ...nn.array_module import ArrayModule
from ...nn.model_tensor import Deferred, Fresh, ModelTensor, outside
from ...nn.own_tensors import OwnTensors
from ...ops.library import is_read_by_backward
from ...ops.shared import is_shared, once
from ..rules.table import in_place, plain_name

_MODULES: dict[type[torch.nn.Module], str] = {
    torch.nn.ReLU: "relu",
    torch.nn.ReLU6: "relu6",
    torch.nn.LeakyReLU: "leaky_relu",
    torch.nn.Hardswish: "hardswish",
    torch.nn.SiLU: "silu",
    torch.nn.GELU: "gelu",
}


_FORWARDS: dict[Any, Any] = {
    kind: kind.forward for name in torch.nn.modules.activation.__all__ for kind in [getattr(torch.nn, name)]
}


def has_torchs_forward(activation: torch.nn.Module) -> bool:
    """Return True for an activation of torch's whose class has the forward that torch gave it."""
    kind: Any = type(activation)
    return kind in _FORWARDS and kind.forward is _FORWARDS[kind]


def activation_of(module: torch.nn.Module) -> tuple[str, float] | None:
    """Return (activation, slope) of a module that a layer can compute in its own pass, else None."""
    name = _MODULES.get(type(module))
    if name is None or not has_torchs_forward(module):
        return None
    if getattr(module, "approximate", "none") != "none":
        return None
    return name, float(getattr(module, "negative_slope", 0.0))


def _activation(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, float] | None:
    """Return (activation, slope) of a call, else None: torch.nn.ReLU6, for one, calls `hardtanh(x, 0, 6)`."""
    rest = {key: value for key, value in kwargs.items() if key != "inplace"}
    if name in ("relu", "relu6", "hardswish", "silu"):
        return (name, 0.0) if not rest and len(args) <= 2 else None
    if name == "gelu":
        exact = len(args) == 1 and rest.get("approximate", "none") == "none"
        return ("gelu", 0.0) if exact else None
    if name == "hardtanh":
        bounds = args[1:3] if len(args) > 2 else (rest.get("min_val", -1.0), rest.get("max_val", 1.0))
        return ("relu6", 0.0) if tuple(bounds) == (0, 6) else None
    if name == "leaky_relu":
        slope = args[1] if len(args) > 1 else rest.get("negative_slope", 0.01)
        return ("leaky_relu", float(slope)) if isinstance(slope, (int, float)) else None
    return None


#: Where each activation's `inplace` stands among the positional arguments.
_INPLACE = {"relu": 1, "relu6": 1, "hardswish": 1, "silu": 1, "leaky_relu": 2, "hardtanh": 3, "gelu": 1}


def continued(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Fuse `func` into the layer of its deferred argument, and return the result; None if the layer cannot."""
    name = plain_name(func)
    if name in ("add", "radd") and len(args) == 2 and not kwargs:
        return _sum(func, args[0], args[1])
    first = args[0]
    if type(first) is not ModelTensor or first.deferred is None:
        return None
    waiting: Deferred = first.deferred
    wanted = _activation(name, args, kwargs)
    if (
        wanted is None
        or wanted[0] not in waiting.layer.activations
        or waiting.activation is not None
        or waiting.taken
        or waiting.grad != torch.is_grad_enabled()
    ):
        return None
    activated = waiting.through(wanted)
    waits = wanted[0] in waiting.layer.before_maximum(waiting.x)
    value, later = (None, activated) if waits else (activated.compute(), None)
    waiting.taken = True
    if in_place(func) or kwargs.get("inplace") or True in args[_INPLACE[name] : _INPLACE[name] + 1]:
        first.become(value, later)
        return first
    result = ModelTensor(value, later)
    if waiting.shared:
        result.fresh = Fresh()
    return result


def maximum(x: ModelTensor, dim: int) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Compute (values, indices) of the maximum over `dim` of a deferred tensor in its layer; None if it cannot."""
    waiting = x.deferred
    if waiting is None or waiting.taken or waiting.residual is not None or dim % x.dim() != x.dim() - 1:
        return None
    activation = waiting.activation or ("none", 0.0)
    if (
        activation[1] < 0
        or waiting.grad != torch.is_grad_enabled()
        or activation[0] not in waiting.layer.before_maximum(waiting.x)
    ):
        return None
    with outside():
        found: tuple[torch.Tensor, torch.Tensor] = waiting.given(waiting.layer.maximum(waiting.x, *activation))
    waiting.taken = True
    return found


def _sum(func: Any, a: Any, b: Any) -> Any:
    """Fuse `a + b` into the layer of a deferred operand; None if there is none."""
    # If both operands are deferred, fuse into the later one, so that running statistics update in program order.
    pairs = [(a, b)] if in_place(func) else [(b, a), (a, b)]
    for first, second in pairs:
        if type(first) is not ModelTensor or type(second) is not ModelTensor or first.deferred is None:
            continue
        waiting = first.deferred
        same = second.shape == first.shape and second.dtype == first.dtype and second is not first
        same = same and waiting.activation is None
        if not (same and waiting.layer.adds_residual and waiting.residual is None and not waiting.taken):
            continue
        if waiting.grad != torch.is_grad_enabled():
            continue
        more = waiting.plus(second.value)
        if more is None:
            continue
        if in_place(func):
            first.become(None, more)
            return first
        # Whoever still holds the first gets it computed once more; the layer's buffers change with the sum.
        waiting.taken = True
        result = ModelTensor(None, more)
        if more.shared:
            result.fresh = Fresh()
        return result
    return None


#: Activations whose functions are ours, by torch's class.
_OURS: dict[type[torch.nn.Module], Callable[[Any, torch.Tensor], torch.Tensor]] = {
    torch.nn.Tanh: lambda m, x: functional.tanh(x),
    torch.nn.GELU: lambda m, x: functional.gelu(x, m.approximate),
    torch.nn.Mish: lambda m, x: functional.mish(x),
    torch.nn.Softplus: lambda m, x: functional.softplus(x, m.beta, m.threshold),
    torch.nn.ELU: lambda m, x: functional.elu(x, m.alpha),
    torch.nn.SELU: lambda m, x: functional.selu(x),
}


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
            elif getattr(module, "inplace", False) and not isinstance(module, ArrayModule):
                x = _written(module, x)
            elif (
                type(x) is torch.Tensor and type(module) in _OURS and has_torchs_forward(module) and not _hooked(module)
            ):
                x = _OURS[type(module)](module, x)
            else:
                x = module(x)
        return x


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
