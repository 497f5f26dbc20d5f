# SPDX-License-Identifier: MIT
"""Convolutions that become products (1 x 1 filters, maps of one pixel) against a loop of torch's layers."""

import sys
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
import work

from dnnsuite.nn import functional
from timing import Case, main


def bench(B, inputs, outputs, side, kernel, samples=32):
    x = torch.randn(B, samples, side, side, inputs).movedim(-1, 2).requires_grad_()
    weight = torch.randn(B, outputs, inputs, kernel, kernel).requires_grad_()
    padding = kernel // 2
    grad = torch.randn(B, samples, side, side, outputs).movedim(-1, 2)

    def own():
        x.grad = weight.grad = None
        functional.conv2d(x, weight, padding=padding).backward(grad)

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
                F.conv2d(*leaves, padding=padding).backward(g)

        return run

    return Case(
        "convolution",
        f"B={B} {inputs}->{outputs} k{kernel} {side}x{side}",
        {
            "own": own,
            "loop of torch": loop(torch.contiguous_format),
            "loop, channels last": loop(torch.channels_last),
        },
        work.convolution(B, samples, inputs, outputs, side, side, kernel),
    )


SHAPES = [
    *((32, 192, 4, 1), (384, 96, 2, 1), (320, 1280, 1, 1), (24, 144, 8, 1), (256, 64, 16, 1)),
    *((64, 64, 1, 3), (512, 512, 1, 3)),
]


def cases(B):
    for shape in SHAPES:
        yield bench(B, *shape)


if __name__ == "__main__":
    main(__doc__, cases)
