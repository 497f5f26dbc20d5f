# SPDX-License-Identifier: MIT
"""Low-rank updates of B models, as adapters add them to a layer: y + s dropout(x) Aᵀ Bᵀ, in one pass over x and y.

On a CPU there is a kernel (`cpp/fused/cpu/low_rank_kernel.cpp`) for factors of float32 or float64, on a base of the
same type or of bfloat16. Alone, without dropout, it is 1.04 to 2.95 times as fast as its composition in 47 of 48 cells
of `benchmarks/ops/bench_low_rank.py`, and 0.95 times in one, under load; in a whole step no difference was seen.
Nothing of x's or y's size is written but the result, and each model is computed at its own rank.

On a GPU for which Triton compiles there is a kernel for adapters in float32 on a base of 16 bits, which are the usual
ones: PEFT's way casts x, and writes and reads two tensors of y's size in float32, which takes 1.9 to 2.9 times as long
on an H200 (`benchmarks/gpu/low_rank.py`). Adapters of 16 bits are faster as torch's batched products, which the tensor
cores compute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ._linear import linear, own_products
from ._pointwise import dropout
from .device import on_cpu, triton_runs
from .library import applied, fake, library, tracing, transforming

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


fake("low_rank", lambda y, x, down: (y.new_empty(y.shape), down.new_empty((x.numel() // x.shape[-1], down.shape[1]))))
fake(
    "low_rank_backward",
    lambda x, down, up, needs_x: (x.new_empty(x.shape if needs_x else 0), *(t.new_empty(t.shape) for t in (down, up))),
)


class _LowRank(torch.autograd.Function):
    """Update by the kernel of a CPU, or where there are no `ranks` by that of a GPU: x has then been through dropout,
    and `most` is the largest number of a model's rows."""

    @staticmethod
    def forward(
        ctx: Any, y: Tensor, x: Tensor, down: Tensor, up: Tensor, scale: Tensor, p: Tensor | None, rng: Tensor | None,
        offsets: Tensor | None, ranks: Sequence[int] | None, rows: Sequence[int], most: int,
    ) -> Tensor:  # fmt: skip
        if ranks is None:
            out, hidden = _updated(y, x, down, up, scale, offsets, most, y.dtype)
        else:
            out, hidden = library.low_rank(y, x, down, up, scale, ranks, rows, p, rng)
        ctx.save_for_backward(x, down, up, scale, hidden, p, rng, offsets)
        ctx.sizes = ranks, rows, most
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        x, down, up, scale, hidden, p, rng, offsets = ctx.saved_tensors
        ranks, rows, most = ctx.sizes
        _, needs_x, needs_down, needs_up = ctx.needs_input_grad[:4]
        if torch.is_grad_enabled():
            counts = rows if offsets is None else offsets.diff().tolist()
            found: tuple[Any, ...] = _gradients(grad, x, down, up, scale, counts, p, rng)
        elif ranks is None:
            across = up.transpose(1, 2), down.transpose(1, 2), scale
            dx, back = _updated(None, grad, *across, offsets, most, x.dtype)
            found = (
                dx,
                _summed(x, back, scale, down, offsets, most, True) if needs_down else None,
                _summed(grad, hidden, scale, up, offsets, most, False) if needs_up else None,
            )
        else:
            found = library.low_rank_backward(grad, x, down, up, scale, hidden, ranks, rows, p, rng, needs_x)
        pairs = zip((grad, *found), ctx.needs_input_grad, strict=False)
        return *(own if needed else None for own, needed in pairs), *(None,) * 7


def _gradients(
    grad: Tensor, x: Tensor, down: Tensor, up: Tensor, scale: Tensor, counts: Sequence[int], p: Tensor | None,
    rng: Tensor | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Compute the gradients of x, down and up by torch's operators, which can be differentiated again."""
    x, down, up = (t.view_as(t).requires_grad_() for t in (x, down, up))
    dropped = _dropped(x.to(down.dtype), counts, p, rng)
    out = _composition(torch.zeros_like(grad), dropped, down, up, scale, counts)
    return torch.autograd.grad(out, (x, down, up), grad, create_graph=True)


def _dropped(x: Tensor, counts: Sequence[int], p: Tensor | None, rng: Tensor | None) -> Tensor:
    """Drop elements of `[B, N, I]`, or of the rows `[L, I]` of which `counts` are each model's."""
    if p is None or rng is None:
        return x
    if not counts:
        return dropout(x, p, rng)
    parts = enumerate(x.split(counts))
    return torch.cat([dropout(own[None], p[i : i + 1], rng[i : i + 1]) for i, own in parts], 1)[0]


def _composition(y: Tensor, x: Tensor, down: Tensor, up: Tensor, scale: Tensor, counts: Sequence[int]) -> Tensor:
    if counts:
        each = zip(y.split(counts), x.split(counts), down, up, scale, strict=True)
        rows = [_composition(own[None], z[None], a[None], b[None], s[None], ()) for own, z, a, b, s in each]
        return torch.cat(rows, 1)[0]
    hidden = linear(x.to(down.dtype), down, in_order=True)
    product = linear(hidden * scale.view(-1, 1, 1), up, in_order=True)
    return (y + product).to(y.dtype)


_apply = applied(_LowRank)


def _has_kernel(y: Tensor, x: Tensor, down: Tensor, up: Tensor) -> bool:
    """Return True if `low_rank_update` pays: on a GPU for which Triton compiles, for ranks up to 128 in
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


def low_rank(
    y: Tensor,
    x: Tensor,
    down: Tensor,
    up: Tensor,
    scale: Tensor,
    ranks: Sequence[int],
    p: Tensor | None = None,
    rng: Tensor | None = None,
    counts: Sequence[int] = (),
    offsets: Callable[[], Tensor] | None = None,
) -> Tensor:
    """Compute y + scale dropout(x) downᵀ upᵀ of each model, in the dtype of y, with sums in that of `down`.

    Args:
        y: `[B, *, O]`.
        x: `[B, *, I]`.
        down: `[B, R, I]`; rows beyond the rank of a model are zeros.
        up: `[B, O, R]`; columns beyond the rank of a model are zeros.
        scale: `[B]`; it gets no gradient.
        ranks: rank of each model.
        p: dropout probabilities, or None.
        rng: (key, step) of each model, as for `dropout`.
        counts: number of rows of each model, if x is `[*, I]` and y `[*, O]` without a dimension of models.
        offsets: function that returns the first row of each model and the end of the last one, on the device of x.
    """
    whole, shape = y.shape, (-1,) if counts else (len(down), y.shape[1:-1].numel())
    y, x = (t.reshape(*shape, t.shape[-1]) for t in (y, x))
    wide = down.dtype, torch.bfloat16 if down.dtype == torch.float32 else down.dtype
    if x.dtype == y.dtype in wide and on_cpu(x) and on_cpu(y) and own_products(down, up, scale) and not tracing():
        return _apply(y, x, down, up, scale, p, rng, None, ranks, counts, 0).view(whole)
    x = x if p is None else _dropped(x.to(down.dtype), counts, p, rng)
    if _has_kernel(y, x, down, up):
        begin = offsets() if offsets is not None and counts else None
        return low_rank_update(y, x, down, up, scale, begin, max(counts, default=0)).view(whole)
    return _composition(y, x, down, up, scale, counts).view(whole)


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
    """Compute y + scale x downᵀ upᵀ of each model, in the dtype of y, with sums in float32.

    Args:
        y: `[B, N, O]`.
        x: `[B, N, I]`; like the others it may be float32, bfloat16 or float16.
        down: `[B, R, I]`.
        up: `[B, O, R]`.
        scale: `[B]`; it gets no gradient.
        offsets: int64 `[B + 1]`. With it x is `[L, I]` and y `[L, O]`, and the rows of model b are offsets[b] to
            offsets[b + 1] - 1.
        most: largest number of rows of a model, if there are offsets.
    """
    most = x.shape[1] if offsets is None else most
    return _apply(y, x, down, up, scale, None, None, offsets, None, (), most)
