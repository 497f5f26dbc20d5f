# SPDX-License-Identifier: MIT
import math

import pytest
import torch

from dnnsuite import models
from dnnsuite.errors import InvalidArgument


def make(**sizes):
    return models.TransformerLanguageModel(30, **{"width": 8, "hidden": 12, "max_len": 9, **sizes})


def test_sees_only_what_is_before():
    model = make().eval()
    tokens = torch.randint(30, (3, 7))
    changed = tokens.clone()
    changed[:, 4] = (changed[:, 4] + 1) % 30
    before, after = model(tokens), model(changed)
    assert before.shape == (3, 7, 30)
    torch.testing.assert_close(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4:], after[:, 4:])


def test_positions_are_sines_and_cosines():
    table = make(width=6).position.table
    assert table.shape == (9, 6)
    for position in (0, 5):
        for pair in range(3):
            angle = position / 10000 ** (2 * pair / 6)
            assert table[position, 2 * pair].item() == pytest.approx(math.sin(angle), abs=1e-5)
            assert table[position, 2 * pair + 1].item() == pytest.approx(math.cos(angle), abs=1e-5)


def test_tied_weights_are_one_parameter():
    tied = make(tied=True)
    assert tied.head.weight is tied.embedding.weight
    assert len(list(make().parameters())) == len(list(make(tied=True).parameters())) + 1


def test_odd_width_and_heads():
    assert make(width=7, heads=1)(torch.randint(30, (1, 3))).shape == (1, 3, 30)
    with pytest.raises(InvalidArgument, match="width=7 must be divisible by heads=2"):
        make(width=7, heads=2)
