# SPDX-License-Identifier: MIT
"""attention, forward and backward, against scaled_dot_product_attention and the composition of products and softmax."""

import sys
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import work

from dnnsuite import ops
from dnnsuite.ops import attention_by_products
from timing import Case, main


def bench(B, sequences, length, heads, head_dim, drop):
    width = heads * head_dim
    qkv = torch.randn(B, sequences, length, 3 * width, requires_grad=True)
    grad = torch.randn(B, sequences, length, width)
    p = torch.full((B,), drop) if drop else None
    rng = torch.stack([torch.arange(B), torch.zeros(B, dtype=torch.int64)], 1) if drop else None

    def sdpa(x):
        q, k, v = (t.transpose(1, 2) for t in x.view(-1, length, 3, heads, head_dim).unbind(2))
        return F.scaled_dot_product_attention(q, k, v, dropout_p=drop).transpose(1, 2).reshape(-1, length, width)

    def train(call):
        def run():
            qkv.grad = None
            y = call()
            y.backward(grad.view_as(y))

        return run

    return Case(
        "attention",
        f"B={B} N={sequences} L={length} H={heads} d={head_dim} p={drop}",
        {
            "own": train(lambda: ops.attention(qkv, heads, p, rng)),
            "torch sdpa": train(lambda: sdpa(qkv)),
            "composition, own dropout": train(lambda: attention_by_products(qkv, heads, p, rng, False, None)),
        },
        work.attention(B, sequences, length, heads, head_dim, bool(drop)),
    )


def cases(B):
    for drop in (0.1, 0.0):
        for shape in ((32, 32, 8, 16), (20, 35, 2, 100), (8, 128, 4, 64)):
            yield bench(B, *shape, drop)


if __name__ == "__main__":
    main(__doc__, cases)
