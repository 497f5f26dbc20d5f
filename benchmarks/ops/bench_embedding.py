# SPDX-License-Identifier: MIT
"""embedding with its dense gradient, against torch's per model and one table with offset indices."""

import sys
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import work

from dnnsuite import ops
from timing import Case, main


def bench(B, vocabulary, columns, count):
    weight = torch.randn(B, vocabulary, columns, requires_grad=True)
    indices = torch.randint(vocabulary, (B, count))
    grad = torch.randn(B, count, columns)
    alone = [weight.detach()[i].requires_grad_() for i in range(B)]
    offset = indices + torch.arange(B)[:, None] * vocabulary

    def own(call):
        def run():
            weight.grad = None
            call().backward(grad)

        return run

    def loop():
        for table, ix, g in zip(alone, indices, grad, strict=True):
            table.grad = None
            F.embedding(ix, table).backward(g)

    return Case(
        "embedding",
        f"B={B} {count} of {vocabulary}x{columns}",
        {
            "own": own(lambda: ops.embedding(weight, indices)),
            "loop of torch": loop,
            "torch with offsets": own(lambda: F.embedding(offset, weight.view(-1, columns))),
        },
        work.embedding(B, vocabulary, columns, count),
    )


def cases(B):
    yield bench(B, 8192, 128, 1024)
    yield bench(B, 33278, 200, 700)


if __name__ == "__main__":
    main(__doc__, cases)
