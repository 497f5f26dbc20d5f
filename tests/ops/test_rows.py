# SPDX-License-Identifier: MIT
"""Rows that an edit writes where they lie."""

import pytest
import torch

from dnnsuite.ops.array_layers import SavedRows, changed_slots, has_rows


@pytest.mark.parametrize(
    ("slots", "B", "changed"),
    [
        ([0, 1, 2], 3, []),
        ([0, None, 2], 3, [1]),
        ([0, 2, 2], 3, [1]),
        ([None, 2, 2, None], 4, [0, 1, 3]),
        ([0, 1], 3, None),  # fewer models
        ([0, 1, 2, None], 3, None),  # more
        ([1, 0], 2, None),  # each is read where another was written
        ([1, None], 2, None),
    ],
)
def test_slots_that_can_be_written_in_place(slots, B, changed):
    assert changed_slots(slots, B) == changed


def test_only_elements_with_memory_of_their_own_can_be_written_alone():
    tensor = torch.zeros(3, 4, 5)
    assert has_rows(tensor)
    assert has_rows(tensor.transpose(1, 2))
    assert has_rows(tensor[:, :1].expand(3, 1, 5))
    assert not has_rows(tensor[:1].expand(3, 4, 5))
    assert not has_rows(tensor[:, :, :1].expand(3, 4, 5))
    assert not has_rows(tensor.to_sparse())


def test_saved_rows_are_put_back_and_others_left():
    first, second = torch.arange(6.0).view(3, 2), torch.arange(3)
    saved = SavedRows([first, second], [0, 2])
    first.fill_(9.0)
    second.fill_(9)
    saved.put_back()
    assert first.tolist() == [[0.0, 1.0], [9.0, 9.0], [4.0, 5.0]]
    assert second.tolist() == [0, 9, 2]
