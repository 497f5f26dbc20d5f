# SPDX-License-Identifier: MIT
"""low_rank, as adapters add it to a layer, forward and backward, against its compositions; GFLOP/s."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import work
from passes import apart, at_once, in_a_loop

from dnnsuite import ops
from timing import Case, main


def bench(B, rows, width, rank, base=torch.float32, drops=0.0):
    y, x = (torch.randn(B, rows, width, dtype=base) for _ in range(2))
    down, up, scale = torch.randn(B, rank, width), torch.randn(B, width, rank), torch.linspace(0.5, 2.0, B)
    grad = torch.randn(B, rows, width, dtype=base)
    leaves = [t.requires_grad_() for t in (y, x, down, up)]
    draw = {"p": torch.full((B,), drops), "rng": torch.arange(2 * B).view(B, 2)} if drops else {}

    def composed():
        own = ops.dropout(x.float(), **draw) if drops else x.float()
        hidden = ops.linear(own, down, in_order=True) * scale.view(-1, 1, 1)
        return (y + ops.linear(hidden, up, in_order=True)).to(base)

    def alone(y, x, down, up):
        own = torch.nn.functional.dropout(x.float(), drops)
        return (y + 2.0 * (own @ down.T @ up.T)).to(base)

    yield Case(
        "low_rank",
        f"B={B} {rows}x{width} rank {rank}{' bfloat16' * (base != torch.float32)}{' dropout' * bool(drops)}",
        {
            "own": at_once(lambda: ops.low_rank(y, x, down, up, scale, [rank] * B, **draw), leaves, grad),
            "composition": at_once(composed, leaves, grad),
            "loop of torch": in_a_loop(alone, apart(leaves, B), list(grad)),
        },
        work.low_rank(B, rows, width, rank, base.itemsize),
    )


def cases(B):
    for width in (256, 768, 2048):
        for rank in (4, 8, 16, 64):
            for rows in (16, 64, 512):
                yield from bench(B, rows, width, rank)
        for base in (torch.float32, torch.bfloat16):
            yield from bench(B, 64, width, 16, base, 0.1)


if __name__ == "__main__":
    main(__doc__, cases)
