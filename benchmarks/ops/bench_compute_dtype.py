# SPDX-License-Identifier: MIT
"""Linear in bfloat16 with float32 parameters, forward and backward, against the same layer in float32."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import work

from dnnsuite import nn
from timing import Case, main


def bench(B, rows, inputs, outputs):
    exact, rounded = nn.Linear(inputs, outputs, B=B), nn.Linear(inputs, outputs, B=B)
    nn.compute_dtype(rounded, torch.bfloat16)
    x, grad = torch.randn(B, rows, inputs, requires_grad=True), torch.randn(B, rows, outputs)

    def train(layer):
        def run():
            layer.weight.grad = layer.bias.grad = x.grad = None
            layer(x).backward(grad)

        return run

    return Case(
        "linear in bfloat16",
        f"B={B} {rows}x{inputs} to {outputs}",
        {"bfloat16": train(rounded), "float32": train(exact)},
        work.linear(B, rows, inputs, outputs),
        {"bfloat16": "bf16"},
    )


def cases(B):
    for shape in ((32, 128, 128), (1024, 128, 512), (512, 768, 768), (64, 784, 512)):
        yield bench(B, *shape)


if __name__ == "__main__":
    main(__doc__, cases)
