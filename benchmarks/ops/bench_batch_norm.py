# SPDX-License-Identifier: MIT
"""batch_norm_act, forward and backward, against torch's batch norm and activation per model."""

import math
import sys
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import work
from passes import apart, at_once, in_a_loop

from dnnsuite import ops
from timing import Case, main

LAYOUTS = {"contiguous": lambda x: x, "channels last": lambda x: x.movedim(2, -1).contiguous().movedim(-1, 2)}
ACTIVATIONS = {"none": lambda z: z, "relu": F.relu, "hardswish": F.hardswish}


def bench(B, shape, activation, add=False):
    def own(x, weight, bias, residual=None):
        return ops.batch_norm_act(x, weight, bias, residual, activation=activation)[0]

    def torchs(x, weight, bias, residual=None):
        y = F.batch_norm(x, None, None, weight, bias, True)
        return ACTIVATIONS[activation](y if residual is None else y + residual)

    variants = {}
    order = ("contiguous", "channels last") if len(shape) > 2 else ("contiguous",)
    for layout in order:
        arrange = LAYOUTS[layout]
        x, grad, residual = (arrange(torch.randn(B, *shape)) for _ in range(3))
        weight, bias = torch.rand(B, shape[1]), torch.randn(B, shape[1])
        leaves = [t.requires_grad_() for t in (x, weight, bias, *([residual] if add else []))]
        variants[f"own {layout}"] = at_once(lambda leaves=leaves: own(*leaves), leaves, grad)
        variants[f"torch {layout}"] = in_a_loop(torchs, apart(leaves, B), grad)
    for layout in order:
        chosen = {f"own {layout}": variants.pop(f"own {layout}")}
        others = {name: run for name, run in variants.items() if name.startswith("torch")}
        text = "x".join(map(str, shape))
        yield Case(
            "batch_norm_act",
            f"B={B} {text} {activation}{' + residual' if add else ''}",
            chosen | others,
            work.batch_norm(B, shape[0], shape[1], math.prod(shape[2:]), activation, add),
        )


def cases(B):
    for shape in ((2048, 64), (2048, 1024), (8, 512), (32, 64, 8, 8), (32, 512, 1, 1), (32, 24, 16, 16)):
        yield from bench(B, shape, "relu")
    yield from bench(B, (32, 96, 8, 8), "hardswish")
    yield from bench(B, (32, 256, 4, 4), "relu", add=True)
    yield from bench(B, (32, 512, 7, 7), "none")


if __name__ == "__main__":
    main(__doc__, cases)
