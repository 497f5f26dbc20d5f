# SPDX-License-Identifier: MIT
import pytest

from dnnsuite._fuse.code.stand_in import ModelNumber
from dnnsuite.nn.model_tensor import NotFusable


def test_arithmetic_with_numbers():
    number = ModelNumber([0.5, 2.0], "rate")
    assert list(1 - number * 2 + number / 4) == [0.125, -2.5]
    assert list(-(1 / number)) == [-2.0, -0.5]
    with pytest.raises(NotFusable):
        number + "1"


def test_comparisons_have_an_answer_where_it_is_the_same():
    number = ModelNumber([0.5, 2.0], "rate")
    assert number > 0
    assert number
    assert number != 3
    for ask in (
        lambda: number > 1,
        lambda: number == 2,
        lambda: float(number),
        lambda: f"{number}",
        lambda: number % 2,
    ):
        with pytest.raises(NotFusable, match="rate differs from model to model"):
            ask()
