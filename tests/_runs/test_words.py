# SPDX-License-Identifier: MIT
import pytest

from dnnsuite._runs.words import truth


@pytest.mark.parametrize(
    ("word", "value"), [("yes", True), (" On", True), ("1", True), ("FALSE", False), ("0", False), ("2", None)]
)
def test_words_of_truth(word: str, value: bool | None) -> None:
    assert truth(word) is value
