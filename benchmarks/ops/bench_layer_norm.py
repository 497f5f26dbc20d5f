# SPDX-License-Identifier: MIT
"""layer_norm and bias_dropout_add_layer_norm, forward and backward, against torch's functions per model and stacked."""

import sys
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import work
from passes import apart, at_once, in_a_loop

from dnnsuite import ops
from timing import Case, main


def bench(B, rows, columns):
    x, residual, grad = (torch.randn(B, rows, columns) for _ in range(3))
    bias, weight, norm_bias = (torch.randn(B, columns) for _ in range(3))
    p, rng = torch.full((B,), 0.1), torch.stack([torch.arange(B), torch.zeros(B, dtype=torch.int64)], 1)
    leaves = [t.requires_grad_() for t in (x, bias, residual, weight, norm_bias)]
    alone = apart(leaves, B)

    def stacked(call):
        return at_once(call, leaves, grad)

    def loop(one):
        return in_a_loop(one, alone, grad)

    def affine(x):
        return F.layer_norm(x, (columns,)) * weight.unsqueeze(1) + norm_bias.unsqueeze(1)

    yield Case(
        "layer_norm",
        f"B={B} {rows}x{columns}",
        {
            "own": stacked(lambda: ops.layer_norm(x, weight, norm_bias)),
            "loop of torch": loop(lambda x, b, r, w, n: F.layer_norm(x, (columns,), w, n)),
            "torch stacked": stacked(lambda: affine(x)),
        },
        work.layer_norm(B, rows, columns),
    )
    yield Case(
        "bias_dropout_add_layer_norm",
        f"B={B} {rows}x{columns}",
        {
            "own": stacked(lambda: ops.bias_dropout_add_layer_norm(x, bias, residual, p, rng, weight, norm_bias)),
            "loop of torch": loop(lambda x, b, r, w, n: F.layer_norm(r + F.dropout(x + b, 0.1), (columns,), w, n)),
            "torch stacked": stacked(lambda: affine(residual + F.dropout(x + bias.unsqueeze(1), 0.1))),
        },
        work.bias_dropout_add_layer_norm(B, rows, columns),
    )


def cases(B):
    for shape in ((1024, 128), (2048, 768), (32, 128)):
        yield from bench(B, *shape)


if __name__ == "__main__":
    main(__doc__, cases)
