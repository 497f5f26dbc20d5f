# SPDX-License-Identifier: MIT
"""`torch.nn.Sequential` in an array: a layer and the activation after it run as one."""

from __future__ import annotations

from typing import Any

import torch

from ...nn.array_module import ArrayModule
from ...nn.model_tensor import ModelTensor, OwnTensors
from .epilogue_fusion import activation_of


class Sequential(OwnTensors, torch.nn.Sequential):
    """Container with the parts of the user's Sequential."""

    def forward(self, x: Any) -> Any:
        modules = list(self._modules.values())
        place = 0
        while place < len(modules):
            module: Any = modules[place]
            after = modules[place + 1] if place + 1 < len(modules) else None
            place += 1
            wanted = None
            if isinstance(module, ArrayModule) and module.activations and type(x) is not ModelTensor:
                wanted = None if after is None or _hooked(module, after) else activation_of(after)
            if wanted is not None and wanted[0] in module.activations:
                x = module.activated(x, *wanted)
                place += 1
            else:
                x = module(x)
        return x


def _hooked(*modules: torch.nn.Module) -> bool:
    return any(m._forward_hooks or m._forward_pre_hooks for m in modules)
