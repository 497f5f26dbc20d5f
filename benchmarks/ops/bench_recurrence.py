# SPDX-License-Identifier: MIT
"""Recurrent layers, forward and backward, against a loop of torch's (an LSTM's is oneDNN's on a CPU)."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import work

from dnnsuite import nn
from timing import Case, main


def bench(layer, B, steps, rows, inputs, hidden):
    array = getattr(nn, layer)(inputs, hidden, B=B)
    models = [array.to_model(index) for index in range(B)]
    x, grad = torch.randn(B, steps, rows, inputs), torch.randn(B, steps, rows, hidden)

    def own():
        array.zero_grad()
        array(x)[0].backward(grad)

    def loop():
        for model, own_x, own_grad in zip(models, x, grad, strict=True):
            model.zero_grad()
            model(own_x)[0].backward(own_grad)

    @torch.no_grad()
    def own_forward():
        array(x)

    @torch.no_grad()
    def loop_forward():
        for model, own_x in zip(models, x, strict=True):
            model(own_x)

    sizes = (layer, B, steps, rows, inputs, hidden)
    shape = f"B={B} T={steps} N={rows} {inputs}-{hidden}"
    yield Case(layer, shape, {"own": own, "loop of torch": loop}, work.recurrence(*sizes))
    yield Case(
        f"{layer}, no grad",
        shape,
        {"own": own_forward, "loop of torch": loop_forward},
        work.recurrence(*sizes, backward=False),
    )


def cases(B):
    for layer in ("LSTM", "GRU", "RNN"):
        yield from bench(layer, B, 35, 20, 200, 200)
        yield from bench(layer, B, 32, 32, 64, 64)
    yield from bench("LSTM", B, 32, 64, 256, 512)
    yield from bench("LSTM", B, 16, 1, 32, 128)


if __name__ == "__main__":
    main(__doc__, cases)
