# SPDX-License-Identifier: MIT
"""Products with factors that rows or columns share, forward and backward, against torch's product."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import work

from dnnsuite import ops
from timing import Case, main


def ours(x, factors):
    product = ops.scaled(x, factors)
    return x * factors if product is None else product  # on a GPU


def bench(B, name, x, factors):
    x, factors = x.requires_grad_(), factors.requires_grad_()
    grad = torch.randn_like(x)

    def passes(function):
        return lambda: torch.autograd.grad(function(x, factors), (x, factors), grad)

    return Case(
        "scaled",
        f"{name} B={B} {'x'.join(map(str, x.shape[1:]))}",
        {"own": passes(ours), "torch": passes(torch.mul)},
        work.scaled(x.numel()),
    )


def cases(B):
    maps = torch.randn(B, 8, 32, 32, 64).movedim(-1, 2)  # channels last
    yield bench(B, "gate of channels", maps, torch.randn(B, 8, 64, 1, 1))
    yield bench(B, "scale of a layer", torch.randn(B, 16, 128, 256), torch.randn(B, 1, 1, 256))


if __name__ == "__main__":
    main(__doc__, cases)
