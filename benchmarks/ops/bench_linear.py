# SPDX-License-Identifier: MIT
"""linear with bias and ReLU, forward and backward, against a loop of torch's and one batched product; GFLOP/s."""

import sys
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import work
from passes import apart, at_once, in_a_loop

from dnnsuite import ops
from timing import Case, main


def bench(B, rows, inputs, outputs):
    x, weight, bias = torch.randn(B, rows, inputs), torch.randn(B, outputs, inputs), torch.randn(B, outputs)
    grad = torch.randn(B, rows, outputs)
    leaves = [t.requires_grad_() for t in (x, weight, bias)]
    alone = apart(leaves, B)

    @torch.no_grad()
    def forward():
        return ops.linear(x, weight, bias, "relu")

    @torch.no_grad()
    def forward_loop():
        return [torch.relu(F.linear(*own)) for own in alone]

    def batched():
        return torch.relu(torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2)))

    shape = f"B={B} {rows}x{inputs} to {outputs}"
    yield Case(
        "linear+relu",
        shape,
        {
            "own": at_once(lambda: ops.linear(x, weight, bias, "relu"), leaves, grad),
            "loop of torch": in_a_loop(lambda *own: torch.relu(F.linear(*own)), alone, list(grad)),
            "baddbmm": at_once(batched, leaves, grad),
        },
        work.linear(B, rows, inputs, outputs, "relu"),
    )
    yield Case(
        "linear+relu, forward alone",
        shape,
        {"own": forward, "loop of torch": forward_loop, "baddbmm": torch.no_grad()(batched)},
        work.linear_forward(B, rows, inputs, outputs, "relu"),
    )


SMALL = ((32, 64, 128), (32, 128, 128), (32, 128, 10), (8, 256, 256), (64, 784, 32), (256, 128, 100))
LARGE = ((64, 784, 512), (1024, 128, 384), (1024, 512, 128), (160, 128, 8192))


def cases(B):
    for shape in (*SMALL, *LARGE):
        yield from bench(B, *shape)


if __name__ == "__main__":
    main(__doc__, cases)
