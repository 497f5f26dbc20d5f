# SPDX-License-Identifier: MIT
"""Classes of work, the same for operators and kernels, and their definitions."""

from __future__ import annotations

__all__ = ["CLASSES", "TRANSPARENT", "meaning"]

CLASSES = {
    "gemm": "matrix products: linear layers, projections",
    "attention": "fused scaled-dot-product attention",
    "conv": "convolutions",
    "recurrence": "LSTM, GRU and RNN layers",
    "norm": "batch, layer, group and RMS normalisation",
    "pooling": "pooling and resampling",
    "embedding": "look-ups by index",
    "softmax": "softmax, within attention or before a loss",
    "loss": "losses",
    "reduction": "sums, means, extrema, sorting",
    "elementwise": "element by element: activations, additions, masks",
    "random": "dropout and random numbers",
    "copy": "copies, casts, transposes to memory, concatenation, gathering",
    "communication": "messages between processes while nothing is computed (exposed)",
    "optimizer": "everything inside an optimizer's step",
    "other": "operators of no class above: views, allocation",
}
TRANSPARENT = ("other", "view", "alloc")
"""Operators that compute nothing themselves; their time counts for their caller."""
_SAME = {
    "comm": "communication",
    "rnn": "recurrence",
    "pool": "pooling",
    "sort": "reduction",
    "view": "other",
    "alloc": "other",
}


def meaning(kind: str) -> tuple[str, str]:
    """Return (class under which `kind` is reported, its definition)."""
    name = _SAME.get(kind, kind)
    return (name, CLASSES[name]) if name in CLASSES else (name, f"work of class {name}")
