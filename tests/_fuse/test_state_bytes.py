# SPDX-License-Identifier: MIT
import torch

import dnnsuite
from dnnsuite._fuse.state import StateBytes


def test_counts_what_is_shared_once():
    base = torch.nn.Linear(10, 4).requires_grad_(False)
    models = [torch.nn.Sequential(base, base, torch.nn.Linear(4, 2, bias=False)) for _ in range(3)]
    array = dnnsuite.fuse(models)
    stream = 16  # of random numbers: the array's, two numbers of 8 bytes for each model
    assert dnnsuite.state_bytes(array) == StateBytes(44 * 4, 8 * 4 + stream, 8 * 4)
    apart = dnnsuite.fuse([torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)])
    assert dnnsuite.state_bytes(apart) == StateBytes(0, 16 + stream, 16)
