# SPDX-License-Identifier: MIT
"""Activations that are exponentials, forward and backward, against torch's."""

import sys
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import work

from dnnsuite.nn import functional
from timing import Case, main

_ACTIVATIONS = {
    "tanh": (functional.tanh, torch.tanh),
    "gelu_tanh": (lambda x: functional.gelu(x, "tanh"), lambda x: F.gelu(x, approximate="tanh")),
    "mish": (functional.mish, F.mish),
    "softplus": (functional.softplus, F.softplus),
    "elu": (functional.elu, F.elu),
}


def bench(B, name, *shape):
    x, grad = torch.randn(B, *shape, requires_grad=True), torch.randn(B, *shape)
    ours, theirs = _ACTIVATIONS[name]

    def passes(function):
        return lambda: torch.autograd.grad(function(x), x, grad)

    return Case(
        "activate",
        f"{name} B={B} {'x'.join(map(str, shape))}",
        {"own": passes(ours), "torch": passes(theirs)},
        work.activate(x.numel()),
    )


def cases(B):
    for name in _ACTIVATIONS:
        yield bench(B, name, 64, 256)
    yield bench(B, "tanh", 64, 64)


if __name__ == "__main__":
    main(__doc__, cases)
