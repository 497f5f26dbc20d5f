# SPDX-License-Identifier: MIT
"""All that a piece of code computes lies on one device, seen without having it: on torch's meta device."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class OneDevice(TorchDispatchMode):
    """Refuses an operator that takes or gives a tensor of another device; scalars may lie anywhere."""

    def __init__(self, device):
        super().__init__()
        self.device = torch.device(device).type

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        tensors = [t for t in tree_leaves((args, kwargs, out)) if isinstance(t, torch.Tensor) and t.dim()]
        assert all(t.device.type == self.device for t in tensors), (func, {str(t.device) for t in tensors})
        return out
