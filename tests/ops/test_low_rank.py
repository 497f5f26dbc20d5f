# SPDX-License-Identifier: MIT
"""Where low-rank updates are one operator, and its shapes; its numbers are in test_triton_low_rank.py."""

import torch

from dnnsuite import ops


def tensors(device):
    shapes = [(2, 3, 4), (2, 3, 5), (2, 1, 5), (2, 4, 1)]
    kinds = [torch.bfloat16, torch.bfloat16, torch.float32, torch.float32]
    return [torch.ones(shape, dtype=kind, device=device) for shape, kind in zip(shapes, kinds, strict=True)]


def test_a_cpu_has_a_composition_instead():
    assert not ops.adds_low_rank(*tensors("cpu"))


def test_shapes_are_known_without_numbers():
    given = [tensor.requires_grad_() for tensor in tensors("meta")]
    out = ops.low_rank_update(*given, torch.ones(2, device="meta"))
    assert (out.shape, out.dtype) == (given[0].shape, torch.bfloat16)
    out.sum().backward()
    assert [(one.grad.shape, one.grad.dtype) for one in given] == [(one.shape, one.dtype) for one in given]
