# SPDX-License-Identifier: MIT
"""max_over, forward and backward, against torch's max per model: over points in the middle and at the end."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
import work

from dnnsuite import ops
from timing import Case, main


def bench(B, shape, dim):
    x = torch.randn(B, *shape, requires_grad=True)
    grad = torch.randn_like(torch.max(x.detach(), dim + 1, keepdim=True)[0])
    alone = [x.detach()[i].requires_grad_() for i in range(B)]

    def stacked(call):
        def run():
            x.grad = None
            call(x).backward(grad)

        return run

    def loop(call):
        def run():
            for own, g in zip(alone, grad, strict=True):
                own.grad = None
                call(own).backward(g)

        return run

    return Case(
        "max_over",
        f"B={B} {'x'.join(map(str, shape))} over {dim}",
        {
            "own": stacked(lambda t: ops.max_over(t, dim + 1)[0]),
            "loop of max": loop(lambda t: torch.max(t, dim, keepdim=True)[0]),
            "loop of amax": loop(lambda t: torch.amax(t, dim, keepdim=True)),
        },
        work.max_over(x.numel(), grad.numel()),
    )


def cases(B):
    yield bench(B, (8, 256, 1024), 1)
    yield bench(B, (8, 1024, 256), 2)
    yield bench(B, (16, 64, 128), 1)


if __name__ == "__main__":
    main(__doc__, cases)
