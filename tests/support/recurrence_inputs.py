# SPDX-License-Identifier: MIT
"""Inputs of `ops.recurrence`, for its tests on each device."""

import torch

from dnnsuite.ops._recurrence import GATES

KINDS = list(GATES)


def inputs(kind, T=4, N=3, H=5, B=2, given=True, dtype=torch.float64):
    """Return gates `[B, T, N, gates * H]`, weight, bias (GRU), h, c (LSTM)."""
    generator = torch.Generator().manual_seed(1)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    width = GATES[kind] * H
    bias = normal(B, width) if kind == "gru" else None
    h, c = (normal(B, N, H), normal(B, N, H) if kind == "lstm" else None) if given else (None, None)
    return normal(B, T, N, width), normal(B, width, H), bias, h, c
