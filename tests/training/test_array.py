# SPDX-License-Identifier: MIT
from dataclasses import replace

import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.training import Data, ExperimentArray
from tiny_arrays import DATA, Exact, array, members


def test_names_and_what_is_alike():
    made = ExperimentArray(members())
    assert (made.B, made.names) == (3, ("model 0", "model 1", "model 2"))
    assert made.first is made.experiments[0]
    assert array().names[2] == "lr=0.4"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch_size": 4}, "models 0 and 2 differ in batch_size, 8 and 4"),
        ({"precision": "bf16"}, "differ in precision, 'fp32' and 'bf16'"),
        ({"epochs": 9}, "differ in epochs"),
        ({"data": Data(Exact(40), DATA.valid, 4, "p", {})}, "50 and 40 samples in their train parts"),
    ],
)
def test_what_cannot_take_its_steps_together(changes, words):
    own = members()
    own[2] = replace(own[2], **changes)
    with pytest.raises(InvalidArgument, match=words):
        ExperimentArray(own)


def test_no_array():
    with pytest.raises(InvalidArgument, match="got none"):
        ExperimentArray([])
    with pytest.raises(InvalidArgument, match="3 experiments take as many different names; got a, a, b"):
        ExperimentArray(members(), ["a", "a", "b"])
    with pytest.raises(InvalidArgument, match="enable_compile is for one model"):
        ExperimentArray(members(compile=True))
