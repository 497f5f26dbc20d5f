# SPDX-License-Identifier: MIT
"""group_norm, forward and backward, against torch's function per model and stacked."""

import sys
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import work

from dnnsuite import ops
from timing import Case, main


def bench(B, shape, groups):
    x, grad = torch.randn(B, *shape, requires_grad=True), torch.randn(B, *shape)
    weight, bias = (torch.rand(B, shape[1], requires_grad=True) for _ in range(2))
    alone = [[t.detach()[i].requires_grad_() for t in (x, weight, bias)] for i in range(B)]

    def own():
        x.grad = weight.grad = bias.grad = None
        ops.group_norm(x, groups, weight, bias).backward(grad)

    def loop():
        for leaves, g in zip(alone, grad, strict=True):
            for leaf in leaves:
                leaf.grad = None
            F.group_norm(leaves[0], groups, *leaves[1:]).backward(g)

    def stacked():
        x.grad = weight.grad = bias.grad = None
        wide = (B, 1, -1, *[1] * (len(shape) - 2))
        y = F.group_norm(x.flatten(0, 1), groups).view(x.shape)
        (y * weight.view(wide) + bias.view(wide)).backward(grad)

    return Case(
        "group_norm",
        f"B={B} {'x'.join(map(str, shape))} in {groups}",
        {"own": own, "loop of torch": loop, "torch stacked": stacked},
        work.affine_norm(x.numel(), B * shape[1], B * shape[0] * groups),
    )


def cases(B):
    yield bench(B, (32, 64, 8, 8), 32)
    yield bench(B, (8, 128, 16, 16), 32)
    yield bench(B, (8, 64, 32, 32), 8)
    yield bench(B, (2, 32, 4, 4), 4)


if __name__ == "__main__":
    main(__doc__, cases)
