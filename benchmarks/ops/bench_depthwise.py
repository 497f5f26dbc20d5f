# SPDX-License-Identifier: MIT
"""depthwise convolution, forward and backward, against a loop of torch's layers in both orders of memory."""

import sys
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import work
from passes import in_a_loop

from dnnsuite.nn import functional
from timing import Case, main


def bench(B, channels, side, kernel, stride, samples=32):
    last = torch.channels_last
    x = torch.randn(B, samples, side, side, channels).movedim(-1, 2).requires_grad_()
    weight, bias = (torch.randn(B, *shape).requires_grad_() for shape in ((channels, 1, kernel, kernel), (channels,)))
    rest = {"stride": stride, "padding": kernel // 2, "groups": channels}
    grad = torch.randn_like(F.conv2d(x[0], weight[0], None, **rest))
    grads = torch.stack([grad.movedim(1, -1)] * B).movedim(-1, 2)

    def own():
        x.grad = weight.grad = bias.grad = None
        functional.conv2d(x, weight, bias, **rest).backward(grads)

    def loop(form):
        alone = [
            [
                x.detach()[i].contiguous(memory_format=form).requires_grad_(),
                weight.detach()[i].contiguous(memory_format=form).requires_grad_(),
                bias.detach()[i].clone().requires_grad_(),
            ]
            for i in range(B)
        ]
        own_grads = [grad.contiguous(memory_format=form)] * B
        return in_a_loop(lambda *leaves: F.conv2d(*leaves, **rest), alone, own_grads)

    return Case(
        "depthwise convolution",
        f"B={B} {channels}x{side}x{side} k{kernel} s{stride}",
        {"own": own, "loop of torch": loop(torch.contiguous_format), "loop, channels last": loop(last)},
        work.convolution(B, samples, channels, channels, side, grad.size(-1), kernel, channels, bias=True),
    )


SHAPES = [
    *((960, 1, 3, 1), (384, 2, 3, 1), (576, 2, 5, 1), (240, 4, 5, 1), (192, 4, 3, 1)),
    *((144, 8, 3, 1), (144, 8, 3, 2), (96, 16, 3, 1), (32, 32, 3, 1), (32, 56, 3, 1)),
]


def cases(B):
    for shape in SHAPES:
        yield bench(B, *shape)


if __name__ == "__main__":
    main(__doc__, cases)
