# SPDX-License-Identifier: MIT
"""rms_norm, forward and backward, against torch's function per model and stacked."""

import sys
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import work
from passes import apart, at_once, in_a_loop

from dnnsuite import ops
from timing import Case, main


def bench(B, rows, columns):
    x, grad = torch.randn(B, rows, columns, requires_grad=True), torch.randn(B, rows, columns)
    weight = torch.rand(B, columns, requires_grad=True)
    alone = apart([x, weight], B)

    def stacked(call):
        return at_once(call, [x, weight], grad)

    return Case(
        "rms_norm",
        f"B={B} {rows}x{columns}",
        {
            "own": stacked(lambda: ops.rms_norm(x, weight)),
            "loop of torch": in_a_loop(lambda x, w: F.rms_norm(x, (columns,), w, 1e-6), alone, grad),
            "torch stacked": stacked(lambda: F.rms_norm(x, (columns,), eps=1e-6) * weight.unsqueeze(1)),
        },
        work.rms_norm(B, rows, columns),
    )


def cases(B):
    for shape in ((1024, 128), (2048, 768), (700, 200), (32, 128)):
        yield bench(B, *shape)


if __name__ == "__main__":
    main(__doc__, cases)
