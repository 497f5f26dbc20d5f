# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite._fuse.state import stacked_parameter, stacked_tensor
from dnnsuite.errors import InvalidArgument


def test_stacks_and_names_what_differs():
    assert stacked_tensor("x", [torch.zeros(2), torch.ones(2)]).tolist() == [[0, 0], [1, 1]]
    with pytest.raises(InvalidArgument, match=r"models 0 and 1 differ: x is \[2\] and \[3\]"):
        stacked_tensor("x", [torch.zeros(2), torch.ones(3)])
    with pytest.raises(InvalidArgument, match="dtype"):
        stacked_tensor("x", [torch.zeros(2), torch.ones(2).double()])
    assert stacked_parameter("w", [torch.nn.Parameter(torch.ones(1)) for _ in range(2)]).shape == (2, 1)
