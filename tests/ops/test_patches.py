# SPDX-License-Identifier: MIT
"""What is special about windows; gradients and layouts in general are in test_operators.py."""

import pytest
import torch

from dnnsuite import ops

STEPS = (4, 3), (2, 1), (1, 2)


def test_adding_up_is_the_transpose_of_cutting():
    x = torch.randn(2, 3, 7, 5, 6, dtype=torch.float64)
    cut = ops.patches(x, *STEPS)
    other = torch.randn_like(cut)
    added = ops.add_patches(other, x.shape[2:4], *STEPS)
    torch.testing.assert_close((cut * other).sum(), (x * added).sum())


def test_images_that_all_models_share_are_cut_once():
    x = torch.randn(1, 3, 7, 5, 6).expand(4, -1, -1, -1, -1)
    cut = ops.patches(x, *STEPS)
    assert cut.stride(0) == 0
    assert torch.equal(cut, ops.patches(x.contiguous(), *STEPS))


def test_impossible_windows_are_refused():
    x = torch.randn(2, 3, 2, 2, 6)
    with pytest.raises(RuntimeError, match=r"the windows do not fit into \[2, 3, 2, 2, 6\]"):
        ops.patches(x, (5, 5), (1, 1), (1, 1))
    with pytest.raises(RuntimeError, match="kernel and stride must be positive"):
        ops.patches(x, (1, 1), (0, 1), (0, 0))
    with pytest.raises(RuntimeError, match="no image of 4 x 4 has windows of 2 x 2 pixels"):
        ops.add_patches(x, (4, 4), (2, 2), (1, 1), (0, 0))
    with pytest.raises(RuntimeError, match="must have five dimensions"):
        ops.patches(x[0], (1, 1), (1, 1), (0, 0))
