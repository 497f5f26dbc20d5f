# SPDX-License-Identifier: MIT
"""Number of threads that torch's operators use."""

import pytest
import torch

from dnnsuite._torch_threads import torch_threads


def _fail(count: int) -> None:
    with torch_threads(count):
        assert torch.get_num_threads() == count
        raise ZeroDivisionError


def test_the_number_holds_within_the_block_and_is_put_back_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError):
        _fail(before + 1)
    assert torch.get_num_threads() == before
