# SPDX-License-Identifier: MIT
"""cross_entropy, forward and backward, against torch's per model and one over all rows."""

import sys
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import work

from dnnsuite import ops
from timing import Case, main


def bench(B, rows, classes):
    logits = torch.randn(B, rows, classes, requires_grad=True)
    target = torch.randint(classes, (B, rows))
    alone = [logits.detach()[i].requires_grad_() for i in range(B)]

    def own():
        logits.grad = None
        ops.cross_entropy(logits, target).sum().backward()

    def loop():
        for x, y in zip(alone, target, strict=True):
            x.grad = None
            F.cross_entropy(x, y).backward()

    def stacked():
        logits.grad = None
        F.cross_entropy(logits.view(-1, classes), target.view(-1), reduction="none").view(B, -1).mean(
            1
        ).sum().backward()

    return Case(
        "cross_entropy",
        f"B={B} {rows}x{classes}",
        {"own": own, "loop of torch": loop, "torch stacked": stacked},
        work.cross_entropy(B, rows, classes),
    )


def cases(B):
    for shape in ((160, 8192), (512, 10000), (8, 10)):
        yield bench(B, *shape)


if __name__ == "__main__":
    main(__doc__, cases)
