# SPDX-License-Identifier: MIT
"""dropout, bias_act_dropout, bias_dropout_add, forward and backward, against torch per model and stacked."""

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
    bias = torch.randn(B, columns, requires_grad=True)
    p, rng = torch.full((B,), 0.1), torch.stack([torch.arange(B), torch.zeros(B, dtype=torch.int64)], 1)
    x.requires_grad_()
    residual.requires_grad_()
    alone = apart([x, bias, residual], B)

    def compare(name, own, one, leaves, does):
        wide = bias.unsqueeze(1)
        variants = {
            "own": at_once(own, leaves, grad),
            "loop of torch": in_a_loop(one, alone, list(grad)),
            "torch stacked": at_once(lambda: one(x, wide, residual), leaves, grad),
        }
        return Case(name, f"B={B} {rows}x{columns}", variants, does)

    yield compare(
        "dropout",
        lambda: ops.dropout(x, p, rng),
        lambda x, b, r: F.dropout(x, 0.1),
        [x],
        work.dropout(B, rows, columns),
    )
    for name, act in (("relu", F.relu), ("gelu", F.gelu)):
        yield compare(
            f"bias_act_dropout {name}",
            lambda n=name: ops.bias_act_dropout(x, bias, n, p, rng),
            lambda x, b, r, a=act: F.dropout(a(x + b), 0.1),
            [x, bias],
            work.bias_act_dropout(B, rows, columns, name),
        )
    yield compare(
        "bias_dropout_add",
        lambda: ops.bias_dropout_add(x, bias, residual, p, rng),
        lambda x, b, r: r + F.dropout(x + b, 0.1),
        [x, bias, residual],
        work.bias_dropout_add(B, rows, columns),
    )


def cases(B):
    yield from bench(B, 1024, 512)
    yield from bench(B, 32, 128)


if __name__ == "__main__":
    main(__doc__, cases)
