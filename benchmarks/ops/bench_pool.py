# SPDX-License-Identifier: MIT
"""max_pool and avg_pool, forward and backward, against torch's channels last: one call for all models, and a loop;
and a ReLU with the pooling behind it against the two one after the other."""

import sys
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import work

from dnnsuite import ops
from timing import Case, main


def bench(B, samples, side, channels, window, kind):
    kernel, stride, padding = ((size, size) for size in window)
    rows = torch.randn(B, samples, side, side, channels, requires_grad=True)
    alone = [own.movedim(-1, 1).detach().requires_grad_() for own in rows.detach()]

    def own(x):
        if kind == "mean":
            return ops.avg_pool(x, kernel, stride, padding)
        return ops.max_pool(x, kernel, stride, padding, activation=kind)

    def plain(images):
        if kind == "mean":
            return F.avg_pool2d(images, kernel, stride, padding)
        return F.max_pool2d(images.relu() if kind == "relu" else images, kernel, stride, padding)

    grad = torch.randn_like(own(rows.detach()))

    def one_call(call):
        def run():
            rows.grad = None
            call().backward(grad)

        return run

    def loop():
        for images, g in zip(alone, grad, strict=True):
            images.grad = None
            plain(images).backward(g.movedim(-1, 1))

    return Case(
        "avg_pool" if kind == "mean" else "max_pool",
        f"B={B} {samples}x{side}x{side}x{channels} {'x'.join(map(str, window))}{' of relu' if kind == 'relu' else ''}",
        {
            "own": one_call(lambda: own(rows)),
            "torch": one_call(lambda: plain(rows.flatten(0, 1).movedim(-1, 1)).movedim(1, -1).view_as(grad)),
            "loop of torch": loop,
        },
        work.pool(rows.numel(), grad.numel(), kernel[0] * kernel[1]),
    )


def cases(B):
    yield bench(B, 64, 28, 16, (2, 2, 0), "relu")
    yield bench(B, 64, 28, 6, (2, 2, 0), "none")
    yield bench(B, 16, 32, 64, (3, 2, 1), "none")
    yield bench(B, 16, 14, 256, (2, 2, 0), "mean")


if __name__ == "__main__":
    main(__doc__, cases)
