# SPDX-License-Identifier: MIT
"""Random numbers of B models from their streams, against torch's generator called for each model."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import work

from dnnsuite import ops
from timing import Case, main

_TORCHS = {
    "normal": lambda x: x.normal_(),
    "uniform": lambda x: x.uniform_(),
    "bernoulli": lambda x: x.bernoulli_(0.5),
    "exponential": lambda x: x.exponential_(),
}
_PARAMETERS = {"normal": (0.0, 1.0), "uniform": (0.0, 1.0), "bernoulli": (0.5,), "exponential": (1.0,)}


def bench(B, kind, *shape):
    like = torch.empty(B, *shape)
    streams = torch.stack([torch.arange(B), torch.zeros(B, dtype=torch.long)], 1)

    def loop():
        return [_TORCHS[kind](torch.empty_like(one)) for one in like]

    return Case(
        "random_numbers",
        f"{kind} B={B} {'x'.join(map(str, shape))}",
        {"own": lambda: ops.random_numbers(like, streams, kind, *_PARAMETERS[kind]), "loop of torch": loop},
        work.random_numbers(like.numel()),
    )


def cases(B):
    yield bench(B, "normal", 64, 8)
    yield bench(B, "normal", 16, 3, 64, 64)
    yield bench(B, "uniform", 64, 256)
    yield bench(B, "bernoulli", 64, 256)
    yield bench(B, "exponential", 64, 256)


if __name__ == "__main__":
    main(__doc__, cases)
