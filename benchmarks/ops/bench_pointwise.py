# SPDX-License-Identifier: MIT
"""dropout, bias_act_dropout, bias_dropout_add, forward and backward, against torch per model and stacked."""

import sys
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import work

from dnnsuite import ops
from timing import Case, main


def train(call, leaves, grad):
    """A forward and a backward pass."""

    def run():
        for leaf in leaves:
            leaf.grad = None
        call().backward(grad)

    return run


def bench(B, rows, columns):
    x, residual, grad = (torch.randn(B, rows, columns) for _ in range(3))
    bias = torch.randn(B, columns, requires_grad=True)
    p, rng = torch.full((B,), 0.1), torch.stack([torch.arange(B), torch.zeros(B, dtype=torch.int64)], 1)
    x.requires_grad_()
    residual.requires_grad_()
    xs, biases = ([t.detach()[i].requires_grad_() for i in range(B)] for t in (x, bias))
    residuals, grads = [residual.detach()[i].requires_grad_() for i in range(B)], list(grad)

    def loop(one):
        def run():
            for i in range(B):
                xs[i].grad = biases[i].grad = residuals[i].grad = None
                one(xs[i], biases[i], residuals[i]).backward(grads[i])

        return run

    def compare(name, own, one, leaves, does):
        wide = bias.unsqueeze(1)
        return Case(
            name,
            f"B={B} {rows}x{columns}",
            {
                "own": train(own, leaves, grad),
                "loop of torch": loop(one),
                "torch stacked": train(lambda: one(x, wide, residual), leaves, grad),
            },
            does,
        )

    yield compare(
        "dropout",
        lambda: ops.dropout(x, p, rng),
        lambda x, b, r: F.dropout(x, 0.1),
        [x],
        work.dropout(B, rows, columns),
    )
    for name, act in (("relu", F.relu), ("gelu", F.gelu)):
        yield compare(
            f"bias_act_dropout {name}",
            lambda n=name: ops.bias_act_dropout(x, bias, n, p, rng),
            lambda x, b, r, a=act: F.dropout(a(x + b), 0.1),
            [x, bias],
            work.bias_act_dropout(B, rows, columns, name),
        )
    yield compare(
        "bias_dropout_add",
        lambda: ops.bias_dropout_add(x, bias, residual, p, rng),
        lambda x, b, r: r + F.dropout(x + b, 0.1),
        [x, bias, residual],
        work.bias_dropout_add(B, rows, columns),
    )


def cases(B):
    yield from bench(B, 1024, 512)
    yield from bench(B, 32, 128)


if __name__ == "__main__":
    main(__doc__, cases)
