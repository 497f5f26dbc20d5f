# SPDX-License-Identifier: MIT
from dataclasses import dataclass

import pytest
import torch

from dnnsuite._fuse.code.call_user_code import joined
from dnnsuite.nn.model_tensor import NotFusable


@dataclass
class Output:
    logits: torch.Tensor
    name: str


def plain(value):
    return value


def test_tensors_in_any_structure_are_stacked():
    one, two = ({"a": torch.full((2,), x), "b": (torch.tensor(x), 7, None)} for x in (1.0, 2.0))
    found = joined([one, two], plain)
    assert found["a"].tolist() == [[1.0, 1.0], [2.0, 2.0]]
    assert found["b"][0].tolist() == [1.0, 2.0]
    assert found["b"][1:] == (7, None)


def test_objects_are_joined_by_attribute():
    found = joined([Output(torch.full((2,), x), "net") for x in (1.0, 2.0)], plain)
    assert found.logits.shape == (2, 2)
    assert found.name == "net"
    normals = [torch.distributions.Normal(torch.zeros(3), torch.full((3,), x)) for x in (1.0, 2.0)]
    assert joined(normals, plain).scale.tolist() == [[1.0] * 3, [2.0] * 3]


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ([torch.ones(2), torch.ones(3)], r"models 0 and 1 .* shape: \[2\] and \[3\]"),
        ([(torch.ones(2),), [torch.ones(2)]], "different structure"),
        ([3, 4], "different outputs: 3 and 4"),
    ],
)
def test_outputs_that_cannot_be_joined(outputs, message):
    with pytest.raises(NotFusable, match=message):
        joined(outputs, plain)
