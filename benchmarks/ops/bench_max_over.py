# SPDX-License-Identifier: MIT
"""max_over, forward and backward, against torch's max per model: over points in the middle and at the end; and of a
batch norm with its ReLU against the two one after the other."""

import sys
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import work

from dnnsuite import ops
from timing import Case, main


def bench(B, shape, dim):
    x = torch.randn(B, *shape, requires_grad=True)
    grad = torch.randn_like(torch.max(x.detach(), dim + 1, keepdim=True)[0])
    alone = [x.detach()[i].requires_grad_() for i in range(B)]

    def stacked(call):
        def run():
            x.grad = None
            call(x).backward(grad)

        return run

    def loop(call):
        def run():
            for own, g in zip(alone, grad, strict=True):
                own.grad = None
                call(own).backward(g)

        return run

    return Case(
        "max_over",
        f"B={B} {'x'.join(map(str, shape))} over {dim}",
        {
            "own": stacked(lambda t: ops.max_over(t, dim + 1)[0]),
            "loop of max": loop(lambda t: torch.max(t, dim, keepdim=True)[0]),
            "loop of amax": loop(lambda t: torch.amax(t, dim, keepdim=True)),
        },
        work.max_over(x.numel(), grad.numel()),
    )


def bench_norm(B, samples, points, channels):
    x = torch.randn(B, samples, points, channels).movedim(-1, 2).requires_grad_()
    parameters = [torch.randn(B, channels, requires_grad=True) for _ in range(2)]
    grad = torch.randn(B, samples, channels, 1)
    alone = [[t.detach()[i].requires_grad_() for t in (x, *parameters)] for i in range(B)]

    def stacked(call):
        def run():
            for leaf in (x, *parameters):
                leaf.grad = None
            call().backward(grad)

        return run

    def loop():
        for (own, weight, bias), g in zip(alone, grad, strict=True):
            own.grad = weight.grad = bias.grad = None
            y = F.batch_norm(own, None, None, weight, bias, True)
            torch.max(F.relu(y), 2, keepdim=True)[0].backward(g)

    return Case(
        "batch_norm_max",
        f"B={B} {samples}x{channels}x{points}",
        {
            "own": stacked(lambda: ops.batch_norm_max(x, *parameters, activation="relu")[0]),
            "norm, then max_over": stacked(
                lambda: ops.max_over(ops.batch_norm_act(x, *parameters, activation="relu")[0], 3)[0]
            ),
            "loop of torch": loop,
        },
        work.batch_norm_max(B, samples, channels, points),
    )


def cases(B):
    yield bench(B, (8, 256, 1024), 1)
    yield bench(B, (8, 1024, 256), 2)
    yield bench(B, (16, 64, 128), 1)
    yield bench_norm(B, 8, 256, 1024)
    yield bench_norm(B, 8, 256, 64)


if __name__ == "__main__":
    main(__doc__, cases)
