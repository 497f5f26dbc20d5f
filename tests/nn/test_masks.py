# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import stack
from dnnsuite.errors import InvalidArgument
from dnnsuite.nn._attention import is_causal_mask, joined_mask, shape_for_heads

LATER = torch.ones(4, 4, dtype=torch.bool).triu(1)


def test_shapes_for_heads():
    assert shape_for_heads(torch.zeros(4, 5), 2, 3, 6).shape == (1, 1, 1, 4, 5)
    assert shape_for_heads(torch.zeros(2, 4, 5), 2, 3, 6).shape == (2, 1, 1, 4, 5)
    assert shape_for_heads(torch.zeros(2, 18, 4, 5), 2, 3, 6).shape == (2, 3, 6, 4, 5)
    with pytest.raises(InvalidArgument, match=r"dnnsuite\.stack"):
        shape_for_heads(torch.zeros(18, 4, 5), 2, 3, 6)


def test_masks_are_joined_and_extra_keys_are_seen():
    padding = torch.tensor([False, True, False, False])
    both = joined_mask(LATER, padding, 1, torch.float32)
    assert both.dtype == torch.bool
    assert both.tolist() == [[*row, False] for row in (LATER | padding).tolist()]
    added = joined_mask(torch.full((4, 4), 2.0), padding, 0, torch.float32)
    assert added[0].tolist() == [2.0, -torch.inf, 2.0, 2.0]
    assert joined_mask(None, None, 2, torch.float32) is None


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.float64])
def test_the_causal_mask_is_known(dtype):
    mask = LATER if dtype == torch.bool else torch.zeros(4, 4, dtype=dtype).masked_fill_(LATER, -torch.inf)
    assert is_causal_mask(mask)
    assert is_causal_mask(stack(mask, B=3))
    assert not is_causal_mask(mask.t())
    assert not is_causal_mask(mask[:3])
    assert not is_causal_mask(None)
