# SPDX-License-Identifier: MIT
"""Convolutions that become products (1 x 1 filters, maps of few pixels) against a loop of torch's layers."""

import sys
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import work

from dnnsuite.nn import functional
from timing import Case, main


def bench(B, inputs, outputs, side, kernel, stride=1, samples=32):
    x = torch.randn(B, samples, side, side, inputs).movedim(-1, 2).requires_grad_()
    weight = torch.randn(B, outputs, kernel, kernel, inputs).movedim(-1, 2).requires_grad_()
    padding = kernel // 2
    out_side = (side + 2 * padding - kernel) // stride + 1
    grad = torch.randn(B, samples, out_side, out_side, outputs).movedim(-1, 2)

    def own():
        x.grad = weight.grad = None
        functional.conv2d(x, weight, padding=padding, stride=stride).backward(grad)

    def loop(form):
        alone = [
            [t.detach()[i].contiguous(memory_format=form).requires_grad_() for t in (x, weight)]
            for i in range(B)
        ]
        grads = [g.contiguous(memory_format=form) for g in grad]

        def run():
            for leaves, g in zip(alone, grads, strict=True):
                for leaf in leaves:
                    leaf.grad = None
                F.conv2d(*leaves, padding=padding, stride=stride).backward(g)

        return run

    return Case(
        "convolution",
        f"B={B} {inputs}->{outputs} k{kernel}/{stride} {side}x{side}",
        {
            "own": own,
            "loop of torch": loop(torch.contiguous_format),
            "loop, channels last": loop(torch.channels_last),
        },
        work.convolution(B, samples, inputs, outputs, side, out_side, kernel),
    )


SHAPES = [
    *((32, 192, 4, 1), (384, 96, 2, 1), (320, 1280, 1, 1), (24, 144, 8, 1), (256, 64, 16, 1)),
    *((64, 64, 1, 3), (512, 512, 1, 3)),
    *((256, 256, 2, 3), (256, 512, 2, 3, 2), (128, 256, 4, 3, 2), (256, 256, 3, 3), (128, 128, 4, 3)),
]


def cases(B):
    for shape in SHAPES:
        yield bench(B, *shape)


if __name__ == "__main__":
    main(__doc__, cases)
