# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import nn
from dnnsuite.errors import InvalidArgument


def test_takes_its_width_from_the_input():
    logits, target = torch.randn(4, 6, 5), torch.randint(5, (4, 6))
    whole = nn.functional.cross_entropy(logits, target)
    assert torch.equal(nn.functional.cross_entropy(logits[1:3], target[1:3]), whole[1:3])


@pytest.mark.parametrize(
    ("logits", "target", "message"),
    [((6, 5), (6,), "of B models"), ((4, 6, 5), (4, 5), r"\[4, 6\]")],
)
def test_refuses_shapes(logits, target, message):
    with pytest.raises(InvalidArgument, match=message):
        nn.functional.cross_entropy(torch.randn(logits), torch.zeros(target, dtype=torch.long))
