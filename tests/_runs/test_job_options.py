# SPDX-License-Identifier: MIT
from typing import Any

import pytest

from dnnsuite._runs.words import parse_options
from dnnsuite.errors import InvalidArgument

DEFAULTS: dict[str, Any] = {"nhid": 512, "dropout": 0.1, "tied": False, "kind": "GRU", "widths": [1, 2]}


def test_a_value_is_as_the_default_is() -> None:
    texts = ["nhid=64", "dropout=1e-2", "tied=yes", "kind=64", "widths=[3]"]
    assert parse_options(texts, DEFAULTS, "x") == {
        "nhid": 64, "dropout": 0.01, "tied": True, "kind": "64", "widths": [3],
    }  # fmt: skip


def test_options_that_only_the_job_knows_are_literals() -> None:
    assert parse_options(["a=1", "b=x"], None, "x") == {"a": 1, "b": "x"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nhit=3", r"job x has no option 'nhit' \(did you mean 'nhid'\?\); it has"),
        ("colour=3", r"no option 'colour'; it has nhid, dropout"),
        ("nhid=3.5", "nhid=3.5: expected a whole number, such as 512"),
        ("dropout=much", "expected a number, such as 0.1"),
        ("tied=perhaps", "expected yes or no"),
        ("nhid", "expected NAME=VALUE"),
        ("=3", "expected NAME=VALUE"),
    ],
)
def test_refusals_name_the_way_out(text: str, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        parse_options([text], DEFAULTS, "x")
