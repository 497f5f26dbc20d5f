# SPDX-License-Identifier: MIT
"""linear, forward and backward: the composition that ops.linear chooses, against a loop of torch's and one baddbmm."""

import sys
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from dnnsuite import ops
from timing import report, start


def bench(B, rows, inputs, outputs):
    x, weight, bias = torch.randn(B, rows, inputs), torch.randn(B, outputs, inputs), torch.randn(B, outputs)
    grad = torch.randn(B, rows, outputs)
    leaves = [t.requires_grad_() for t in (x, weight, bias)]
    alone = [[t.detach()[i].requires_grad_() for t in leaves] for i in range(B)]

    def stacked(call):
        def run():
            for leaf in leaves:
                leaf.grad = None
            call().backward(grad)

        return run

    def loop():
        for own, g in zip(alone, grad, strict=True):
            for leaf in own:
                leaf.grad = None
            F.linear(*own).backward(g)

    report(
        f"linear B={B} {rows}x{inputs} to {outputs}",
        {
            "chosen": stacked(lambda: ops.linear(x, weight, bias)),
            "loop of torch": loop,
            "baddbmm": stacked(lambda: torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))),
        },
    )


if __name__ == "__main__":
    for models in start(__doc__).models:
        for shape in ((1024, 128, 384), (1024, 128, 512), (1024, 512, 128), (160, 128, 8192), (32, 128, 128)):
            bench(models, *shape)
