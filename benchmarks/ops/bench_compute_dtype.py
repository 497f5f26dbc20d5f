# SPDX-License-Identifier: MIT
"""Linear in bfloat16 with float32 parameters, forward and backward, against the same layer in float32."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from dnnsuite import nn
from timing import report, start


def bench(B, rows, inputs, outputs):
    exact, rounded = nn.Linear(inputs, outputs, B=B), nn.Linear(inputs, outputs, B=B)
    nn.compute_dtype(rounded, torch.bfloat16)
    x, grad = torch.randn(B, rows, inputs, requires_grad=True), torch.randn(B, rows, outputs)

    def train(layer):
        def run():
            layer.weight.grad = layer.bias.grad = x.grad = None
            layer(x).backward(grad)

        return run

    report(
        f"bfloat16 B={B} {rows}x{inputs} to {outputs}",
        {"bfloat16": train(rounded), "float32": train(exact)},
        flops=6 * B * rows * inputs * outputs,
    )


if __name__ == "__main__":
    for models in start(__doc__).models:
        for shape in ((32, 128, 128), (1024, 128, 512), (512, 768, 768), (64, 784, 512)):
            bench(models, *shape)
