# SPDX-License-Identifier: MIT
"""Class of an operator by its name."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

__all__ = ["class_of", "phase_of", "replayed_phases"]

# The first that matches counts. Names without namespace; `_` of an in-place operator is left on.
_CLASSES = (
    ("optimizer", r"optimizer|_foreach_|_fused_(adam|sgd|adagrad)"),
    ("attention", r"attention"),
    ("recurrence", r"lstm|gru_|gru$|rnn|recurrence"),
    ("conv", r"conv|depthwise|slow_conv"),
    (
        "gemm",
        r"^(mm|bmm|addmm|baddbmm|addbmm|mv|addmv|dot|vdot|ger|addr|linear|matmul|einsum|_addmm)(_|$)"
        r"|gemm|pixel_products|sum_of_products",
    ),
    ("norm", r"norm"),
    ("loss", r"cross_entropy|nll_loss|mse_loss|l1_loss|bce|kl_div|ctc_loss"),
    ("softmax", r"softmax|logsumexp"),
    ("embedding", r"embedding"),
    ("pooling", r"pool|max_over"),
    ("random", r"dropout|bernoulli|random|normal_|uniform|randperm|multinomial"),
    ("alloc", r"^(empty|new_empty|zeros|ones|full|resize|zero_|fill_|arange|scalar_tensor)"),
    (
        "view",
        r"^(view|reshape|_reshape|_unsafe_view|as_strided|t$|transpose|permute|expand|select$|slice$|narrow|squeeze"
        r"|unsqueeze|detach|alias|flatten|unflatten|split|chunk|unbind|resolve_|lift_fresh|movedim|numpy_T|item"
        r"|_local_scalar)",
    ),
    (
        "copy",
        r"copy|clone|contiguous|^to$|^cat$|^stack$|index|gather|scatter|take|pad|roll|flip|repeat|select_backward"
        r"|slice_backward|tril|triu|where|masked",
    ),
    (
        "reduction",
        r"^(sum|mean|max|min|amax|amin|argmax|argmin|prod|var|std|any|all|topk|sort|cumsum|count)(_|$)",
    ),
)
_COMPILED = tuple((name, re.compile(pattern)) for name, pattern in _CLASSES)
_NAMED = re.compile(r"^(aten|dnnsuite|torchvision|quantized|mkldnn|prims|onednn|inductor)::(.+)$")

_OPTIMIZER = re.compile(r"^Optimizer\.|::optimizer_|::_foreach_|::_fused_(adam|sgd|adagrad)")
_BACKWARD = re.compile(r"^autograd::engine|Backward\d*$|_backward")
_DATA = re.compile(r"^enumerate\(DataLoader")


@functools.cache
def class_of(name: str) -> str:
    """Return the class: gemm, conv, attention, norm, ...; `elementwise` for other computation, `other` for no
    operator."""
    found = _NAMED.match(name)
    if found is None:
        return "other"
    for kind, pattern in _COMPILED:
        if pattern.search(found[2]):
            return kind
    return "elementwise"


@functools.cache
def phase_of(name: str) -> str | None:
    """Return the phase that an event opens for itself and its inner events; None if it opens none."""
    if _OPTIMIZER.search(name):
        return "optimizer"
    if _BACKWARD.search(name):
        return "backward"
    return "data" if _DATA.search(name) else None


def replayed_phases(names: Sequence[str], phases: Sequence[str | None]) -> list[str | None]:
    """Find the phases of one thread's events, in order of time, also in a replayed step without autograd.

    There no event surrounds the operators of the backward pass, but some have telling names: from the first of them to
    the optimizer's, all are backward. Phases recorded from autograd itself stay.
    """
    if any(name.startswith("autograd::engine") for name in names):
        return list(phases)
    found: list[str | None] = []
    current: str | None = None
    for phase in phases:
        current = phase if phase is not None else current
        if current == "optimizer":
            current = None
        found.append(phase or current)
    return found
