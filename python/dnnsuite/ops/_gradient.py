# SPDX-License-Identifier: MIT
"""Norms, scaling and clamping of the gradients of each model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..errors import InvalidArgument
from .library import fake, library
from .optimizer import optimizer_

_norms = library.gradient_norms.default
_HALVES = (torch.bfloat16, torch.float16)
fake("gradient_norms", lambda grads: grads[0].new_empty(grads[0].size(0), dtype=torch.float64))


def as_real(x: Tensor) -> Tensor:
    """View complex numbers as pairs of real ones in a last dimension, as torch's optimizers do; other tensors stay."""
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x


def gradient_norms(grads: Sequence[Tensor], norm_type: float = 2.0) -> Tensor:
    """Compute the norm of all gradients of each model together: float64 [B], from gradients [B, ...] on one device.

    The order of the sum depends only on the shapes. The sum is in double precision, so for gradients of at most 32 bits
    a norm is finite if and only if all of them are.
    """
    if not grads:
        raise InvalidArgument("gradient_norms: grads is empty, so the number of models is not known")
    if norm_type == 2.0:  # that of the pairs; other norms of complex numbers are not
        grads = [as_real(g) for g in grads]
    kinds = {g.dtype for g in grads}
    if len(kinds) > 1 or (kinds & set(_HALVES) and not grads[0].is_cuda):
        wide = torch.float64 if torch.float64 in kinds else torch.float32
        grads = [g.to(wide) for g in grads]
    norms: Tensor = _norms(grads, float(norm_type))
    return norms


def scale_gradients_(grads: Sequence[Tensor], factor: Tensor) -> None:
    """Multiply grads[i][b] by factor[b] in place; `factor` is float64 [B].

    Gradients of a model whose factor is 1 are not touched.
    """
    grads = [as_real(g) for g in grads]
    optimizer_("scale", grads, grads, [], [], [factor], active=factor != 1)


def clamp_gradients_(grads: Sequence[Tensor], limit: Tensor) -> None:
    """Clamp grads[i][b] to [-limit[b], limit[b]] in place; `limit` is float64 [B]. NaN stays NaN."""
    optimizer_("clamp", grads, grads, [], [], [limit])
