# SPDX-License-Identifier: MIT
"""The reference generator against the published numbers; the compiled one is checked in tests/cpp as well."""

import numpy as np
import pytest
import torch

from dnnsuite.ops.reference import dropout_mask, dropout_threshold, philox4x32

# Philox4x32-10 of Random123's known-answer file: counter, key, result.
KNOWN = [
    ("00000000" * 4, "00000000" * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff" * 4, "ffffffff" * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a8885a308d313198a2e03707344", "a4093822299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text):
    return tuple(int(text[i : i + 8], 16) for i in range(0, len(text), 8))


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_known_answers(counter, key, result):
    got = philox4x32(words(counter), words(key), rounds=10)
    assert tuple(int(word) for word in got) == words(result.replace(" ", ""))


@pytest.mark.parametrize(("p", "threshold"), [(0.0, 0), (0.5, 32768), (0.1, 6554), (1.0, 65536)])
def test_threshold(p, threshold):
    assert dropout_threshold(p) == threshold


def test_every_half_word_is_used_once():
    """Within a block, 128 elements take 128 different 16-bit numbers: as many values as chance gives."""
    mask = dropout_mask(torch.tensor([0.5]), torch.tensor([[1, 2]]), (1, 128 * 64))
    per_lane = mask.view(64, 8, 16).numpy() == 0
    assert np.all(np.abs(per_lane.mean(axis=(0, 2)) - 0.5) < 0.1)


def test_shape_and_scale():
    mask = dropout_mask(torch.tensor([0.25, 0.0]), torch.tensor([[1, 2], [3, 4]]), (2, 3, 5))
    assert mask.shape == (2, 3, 5)
    assert set(mask[0].unique().tolist()) == {0.0, torch.tensor(4 / 3).item()}
    assert torch.equal(mask[1], torch.ones(3, 5))
    assert dropout_mask(torch.zeros(0), torch.zeros(0, 2, dtype=torch.int64), (0, 3)).shape == (0, 3)
