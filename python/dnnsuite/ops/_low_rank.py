# SPDX-License-Identifier: MIT
"""Low-rank updates of B models, as adapters add them to a layer: y + s x Aᵀ Bᵀ, in one pass over x and y.

On a GPU for which Triton compiles there is a kernel for adapters in float32 on a base of 16 bits, which are the usual
ones: PEFT's way casts x, and writes and reads two tensors of y's size in float32, which takes 1.9 to 2.9 times as long
on an H200 (`benchmarks/gpu/low_rank.py`). Adapters of 16 bits are faster as torch's batched products, which the tensor
cores compute; they and a CPU have a composition.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from .device import triton_runs
from .library import applied, transforming

MOST_RANK = 128
_NARROW = (torch.bfloat16, torch.float16)


def _update(*given: Any) -> tuple[Tensor, Tensor]:
    from ._triton_low_rank import update

    return update(*given)


def _gradient(*given: Any) -> Tensor:
    from ._triton_low_rank import gradient

    return gradient(*given)


def _no_update(y: Any, x: Tensor, down: Tensor, up: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    rows = x.shape[:-1]
    out = x.new_empty((*rows, up.shape[1]), dtype=rest[-1])
    return out, x.new_empty((*rows, down.shape[1]), dtype=torch.float32)


def _no_gradient(z: Tensor, hidden: Tensor, scale: Tensor, like: Tensor, o: Any, m: int, transposed: bool) -> Tensor:
    sizes = (hidden.shape[-1], z.shape[-1]) if transposed else (z.shape[-1], hidden.shape[-1])
    return like.new_empty((len(scale), *sizes))


_library = torch.library.Library("dnnsuite", "FRAGMENT")
_library.define(
    "low_rank_update(Tensor? y, Tensor x, Tensor down, Tensor up, Tensor scale, Tensor? offsets, int most, "
    "ScalarType dtype) -> (Tensor, Tensor)"
)
_library.define(
    "low_rank_gradient(Tensor z, Tensor hidden, Tensor scale, Tensor like, Tensor? offsets, int most, bool transposed) "
    "-> Tensor"
)
for _key in ("CPU", "CUDA"):
    _library.impl("low_rank_update", _update, _key)
    _library.impl("low_rank_gradient", _gradient, _key)
_library.impl("low_rank_update", _no_update, "Meta")
_library.impl("low_rank_gradient", _no_gradient, "Meta")
_updated = torch.ops.dnnsuite.low_rank_update.default
_summed = torch.ops.dnnsuite.low_rank_gradient.default


class _LowRank(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, y: Tensor, x: Tensor, down: Tensor, up: Tensor, scale: Tensor, offsets: Tensor | None, most: int
    ) -> Tensor:
        out, hidden = _updated(y, x, down, up, scale, offsets, most, y.dtype)
        ctx.save_for_backward(x, down, up, scale, hidden, offsets)
        ctx.most = most
        found: Tensor = out
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        x, down, up, scale, hidden, offsets = ctx.saved_tensors
        if torch.is_grad_enabled():
            return grad, *_gradients(grad, x, down, up, scale, offsets), None, None, None
        needs_y, needs_x, needs_down, needs_up = ctx.needs_input_grad[:4]
        dx, back = _updated(None, grad, up.transpose(1, 2), down.transpose(1, 2), scale, offsets, ctx.most, x.dtype)
        return (
            grad if needs_y else None,
            dx if needs_x else None,
            _summed(x, back, scale, down, offsets, ctx.most, True) if needs_down else None,
            _summed(grad, hidden, scale, up, offsets, ctx.most, False) if needs_up else None,
            *(None, None, None),
        )


def _gradients(
    grad: Tensor, x: Tensor, down: Tensor, up: Tensor, scale: Tensor, offsets: Tensor | None
) -> tuple[Tensor, ...]:
    """Compute the gradients of x, down and up by torch's operators, which can be differentiated again."""
    counts = None if offsets is None else offsets.diff().tolist()
    rows = [t.to(down.dtype).unbind() if counts is None else t.to(down.dtype).split(counts) for t in (grad, x)]
    each = []
    for g, own, a, b, s in zip(*rows, down, up, scale, strict=True):
        back = s * (g @ b)
        each.append((back @ a, back.T @ own, s * (g.T @ (own @ a.T))))
    of_x, of_down, of_up = zip(*each, strict=True)
    dx = torch.stack(of_x) if counts is None else torch.cat(of_x)
    return dx.to(x.dtype), torch.stack(of_down), torch.stack(of_up)


_apply = applied(_LowRank)


def adds_low_rank(y: Tensor, x: Tensor, down: Tensor, up: Tensor) -> bool:
    """Return True if `low_rank_update` is there and pays: on a GPU for which Triton compiles, for ranks up to 128 in
    float32 on a base of 16 bits, without autocast and transforms."""
    return (
        x.is_cuda
        and y.dtype in _NARROW
        and x.dtype in (torch.float32, *_NARROW)
        and down.dtype == up.dtype == torch.float32
        and x.device == y.device == down.device == up.device
        and 0 < down.shape[1] <= MOST_RANK
        and not torch.is_autocast_enabled("cuda")
        and not transforming()
        and not torch.compiler.is_compiling()
        and _compiles(x.device)
    )


@cache
def _compiles(device: torch.device) -> bool:
    def both() -> None:
        one = torch.ones(1, 1, 1, device=device)
        _update(one, one, one, one, one[0, 0], None, 1, one.dtype)
        _gradient(one, one, one[0, 0], one, None, 1, True)

    return triton_runs(both)


def low_rank_update(
    y: Tensor, x: Tensor, down: Tensor, up: Tensor, scale: Tensor, offsets: Tensor | None = None, most: int = 0
) -> Tensor:
    """Compute y + scale x downᵀ upᵀ of each model, in y's dtype with sums in float32.

    Args:
        y: `[B, N, O]`.
        x: `[B, N, I]`, of any of float32, bfloat16 and float16, as the others.
        down: `[B, R, I]`.
        up: `[B, O, R]`.
        scale: `[B]`, which takes no gradient.
        offsets: int64 `[B + 1]`; x is then `[L, I]` and y `[L, O]`, with model b's rows from offsets[b] to below
            offsets[b + 1].
        most: rows of the model that has most, where there are offsets.
    """
    result: Tensor = _apply(y, x, down, up, scale, offsets, x.shape[1] if offsets is None else most)
    return result
