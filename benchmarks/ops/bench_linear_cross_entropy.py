# SPDX-License-Identifier: MIT
"""linear_cross_entropy, forward and backward, against layer and loss apart: a loop of torch's, and our own two."""

import sys
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import work

from dnnsuite import ops
from timing import Case, main


def bench(B, rows, inputs, classes):
    x = torch.randn(B, rows, inputs, requires_grad=True)
    weight = (torch.randn(B, classes, inputs) / inputs**0.5).requires_grad_()
    target = torch.randint(classes, (B, rows))
    alone = [[t.detach()[i].requires_grad_() for t in (x, weight)] for i in range(B)]

    def stacked(call):
        def run():
            x.grad = weight.grad = None
            call().sum().backward()

        return run

    def loop(call):
        def run():
            for (own, w), y in zip(alone, target, strict=True):
                own.grad = w.grad = None
                call(own, w, y).backward()

        return run

    variants = {
        "own": stacked(lambda: ops.linear_cross_entropy(x, weight, target)),
        "loop of torch": loop(lambda x, w, y: F.cross_entropy(F.linear(x, w), y)),
        "own, apart": stacked(lambda: ops.cross_entropy(ops.linear(x, weight), target)),
    }
    if hasattr(F, "linear_cross_entropy"):
        options = torch.nn.LinearCrossEntropyOptions()
        variants["torch in chunks"] = loop(lambda x, w, y: F.linear_cross_entropy(x, w, y, options=options))
    return Case(
        "linear_cross_entropy",
        f"B={B} {rows}x{inputs} to {classes}",
        variants,
        work.linear_cross_entropy(B, rows, inputs, classes),
    )


def cases(B):
    for shape in ((512, 128, 10000), (700, 200, 10000), (160, 128, 8192)):
        yield bench(B, *shape)


if __name__ == "__main__":
    main(__doc__, cases)
