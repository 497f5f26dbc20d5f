# SPDX-License-Identifier: MIT
"""Layers of plain models draw the array's numbers; what else draws is seen, and leaves torch's generator alone."""

import torch

from dnnsuite import nn
from dnnsuite._fuse.code.plain_draws import Draws, draw_as, generator_back


def test_a_plain_layer_draws_as_the_arrays_does():
    own, other = nn.Dropout(0.5, B=1), nn.Dropout(0.5, B=1)
    other.rng.copy_(own.rng)
    plain, x = torch.nn.Dropout(0.5), torch.ones(4, 16)
    for _ in range(2):  # told twice, it is still of one class
        draw_as(plain, own)
    assert isinstance(plain, torch.nn.Dropout)
    for _ in range(3):
        torch.testing.assert_close(plain(x), other(x.unsqueeze(0))[0])
    assert torch.equal(plain.eval()(x), x)


def test_what_draws_is_seen_and_taken_back():
    before = torch.get_rng_state()
    with Draws() as draws, generator_back(draws):
        torch.ones(3).mul(2)
        assert not draws.drew
        torch.rand(3)
        assert draws.drew
    assert torch.equal(torch.get_rng_state(), before)
