# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.profiling.batch_sizes import parse, refuse_twice


def test_numbers_with_commas() -> None:
    assert parse("1,2, 4") == (1, 2, 4)
    assert parse(None) == ()


@pytest.mark.parametrize("text", ["", "1,,2", "1.5", "0", "-1", "1 2"])
def test_anything_else_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(InvalidArgument, match="--batch-sizes") as caught:
        parse(text)
    assert repr(text) in str(caught.value)


def test_a_size_twice() -> None:
    refuse_twice([1, 2])
    with pytest.raises(InvalidArgument, match="1,2,1 names one twice"):
        refuse_twice([1, 2, 1])
