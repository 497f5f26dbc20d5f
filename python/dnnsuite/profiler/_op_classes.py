# SPDX-License-Identifier: MIT
"""Classes of work, the same for operators and kernels, and their definitions."""

from __future__ import annotations

FRAME = "frame"

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
    "reduction": "sums, means, norms of vectors (clipping), extrema, sorting, scans",
    "elementwise": "element by element: activations, additions, masks",
    "random": "dropout and random numbers",
    "copy": "copies, casts, transposes to memory, concatenation, gathering",
    "fft": "Fourier transforms, but those of a convolution",
    "linalg": "decompositions, solutions and inverses of matrices",
    "compiled": "graphs that torch.compile generated, fused from operators of several classes",
    "custom": "operators of extensions and torch.library, and the code of autograd functions of one's own",
    "communication": "messages between processes while nothing is computed (exposed)",
    "optimizer": "an optimizer's step, without the closure that it calls",
    "views": "views and allocation: nothing is computed",
    FRAME: "calls around operators, as autograd's nodes and annotations: their own time is Python and dispatch",
    "other": "work whose name no rule knows",
}
TRANSPARENT = ("view", "alloc", FRAME)
"""What computes nothing itself; its time counts for its caller."""
_SAME = {
    "comm": "communication",
    "rnn": "recurrence",
    "pool": "pooling",
    "sort": "reduction",
    "view": "views",
    "alloc": "views",
}


def meaning(kind: str) -> tuple[str, str]:
    """Return (class under which `kind` is reported, its definition)."""
    name = _SAME.get(kind, kind)
    return (name, CLASSES[name]) if name in CLASSES else (name, f"work of class {name}")
