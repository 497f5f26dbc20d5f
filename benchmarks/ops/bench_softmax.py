# SPDX-License-Identifier: MIT
"""Softmax along rows of a few numbers, forward and backward, against torch's."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import work

from dnnsuite import ops
from timing import Case, main


def bench(B, rows, columns, log):
    x, grad = torch.randn(B, rows, columns, requires_grad=True), torch.randn(B, rows, columns)
    torchs = torch.log_softmax if log else torch.softmax

    def passes(function):
        return lambda: torch.autograd.grad(function(x), x, grad)

    return Case(
        "short_softmax",
        f"{'log, ' if log else ''}B={B} {rows}x{columns}",
        {"own": passes(lambda t: ops.short_softmax(t, log)), "torch": passes(lambda t: torchs(t, -1))},
        work.short_softmax(x.numel()),
    )


def cases(B):
    yield bench(B, 128, 10, log=True)
    yield bench(B, 4096, 6, log=False)


if __name__ == "__main__":
    main(__doc__, cases)
