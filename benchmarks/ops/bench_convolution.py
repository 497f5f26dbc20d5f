# SPDX-License-Identifier: MIT
"""Convolutions that become products (1 x 1 filters, small maps, whole maps, windows) against a loop of torch."""

import sys
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import work

from dnnsuite.nn import functional
from timing import Case, main


def bench(B, inputs, outputs, side, kernel, stride=1, samples=32, padding=None):
    x = torch.randn(B, samples, side, side, inputs).movedim(-1, 2).requires_grad_()
    weight = torch.randn(B, outputs, kernel, kernel, inputs).movedim(-1, 2).requires_grad_()
    padding = kernel // 2 if padding is None else padding
    out_side = (side + 2 * padding - kernel) // stride + 1
    grad = torch.randn(B, samples, out_side, out_side, outputs).movedim(-1, 2)
    label = f"B={B} {inputs}->{outputs} k{kernel}/{stride} {side}x{side}"
    done = work.convolution(B, samples, inputs, outputs, side, out_side, kernel)
    return compare("conv2d", label, x, weight, grad, done, padding=padding, stride=stride)


def bench_transposed(B, inputs, outputs, kernel, samples, side=1, stride=1, padding=0):
    """As in a generator: from maps of one pixel, then of twice the side each time."""
    x = torch.randn(B, samples, side, side, inputs).movedim(-1, 2).requires_grad_()
    weight = torch.randn(B, inputs, kernel, kernel, outputs).movedim(-1, 2).requires_grad_()
    out_side = (side - 1) * stride - 2 * padding + kernel
    grad = torch.randn(B, samples, out_side, out_side, outputs).movedim(-1, 2)
    label = f"B={B} {inputs}->{outputs} k{kernel}/{stride} {side}x{side}, transposed"
    done = work.convolution(B, samples, outputs, inputs, out_side, side, kernel)
    return compare("conv_transpose2d", label, x, weight, grad, done, padding=padding, stride=stride)


def compare(name, label, x, weight, grad, done, **rest):
    ours, plain = getattr(functional, name), getattr(F, name)

    def own():
        x.grad = weight.grad = None
        ours(x, weight, **rest).backward(grad)

    def loop(form):
        alone = [
            [t.detach()[i].contiguous(memory_format=form).requires_grad_() for t in (x, weight)] for i in range(len(x))
        ]
        grads = [g.contiguous(memory_format=form) for g in grad]

        def run():
            for leaves, g in zip(alone, grads, strict=True):
                for leaf in leaves:
                    leaf.grad = None
                plain(*leaves, **rest).backward(g)

        return run

    peers = {"loop of torch": torch.contiguous_format, "loop, channels last": torch.channels_last}
    return Case("convolution", label, {"own": own} | {peer: loop(form) for peer, form in peers.items()}, done)


SHAPES = [
    *((32, 192, 4, 1), (384, 96, 2, 1), (320, 1280, 1, 1), (24, 144, 8, 1), (256, 64, 16, 1)),
    *((64, 64, 1, 3), (512, 512, 1, 3)),
    *((256, 256, 2, 3), (256, 512, 2, 3, 2), (128, 256, 4, 3, 2), (256, 256, 3, 3), (128, 128, 4, 3)),
    *((128, 1, 4, 4, 1, 4, 0), (16, 120, 5, 5, 1, 32, 0), (512, 512, 4, 4, 1, 32, 0), (64, 10, 7, 7, 1, 32, 0)),
]


def cases(B):
    for shape in SHAPES:
        yield bench(B, *shape)
    yield bench_transposed(B, 100, 128, 4, 4)
    yield bench_transposed(B, 100, 512, 4, 32)
    for inputs, outputs, side in ((128, 64, 4), (64, 32, 8), (32, 16, 16), (16, 3, 32)):  # a narrow DCGAN's generator
        yield bench_transposed(B, inputs, outputs, 4, 4, side, 2, 1)
        yield bench(B, outputs, inputs, 2 * side, 4, 2, 4, 1)  # and its discriminator


if __name__ == "__main__":
    main(__doc__, cases)
