# SPDX-License-Identifier: MIT
"""One batch of an array out of those of its trials."""

import pytest
import torch

from dnnsuite.errors import InvalidArgument
from dnnsuite.tuning.feeds import Feed, arguments_of, side_by_side, stacked


def feed(*batches):
    return Feed(list(batches), 0, None)


def test_readers_of_one_epoch_share_its_batches():
    x, y = torch.arange(6.0).view(3, 2), torch.arange(3)
    one = feed((x, y))
    (batch,) = side_by_side([(one, 0), (one, 0)])
    assert [part.shape for part in batch] == [(2, 3, 2), (2, 3)]
    assert batch[0].stride(0) == 0  # no copy
    ((first, _),) = side_by_side([(one, 0), (one, 1)])
    assert first.stride(0) == 6
    assert torch.equal(first[1], x)


def test_batches_of_all_forms():
    x = torch.arange(6.0).view(3, 2)
    ragged = stacked([x, x[:2]], False)
    assert [len(part) for part in ragged] == [3, 2]
    assert arguments_of(ragged, "cpu") == (ragged,)
    named = stacked([{"x": x, "more": [x]}, {"x": x + 1, "more": [x]}], False)
    assert torch.equal(named["x"][1], x + 1)
    assert arguments_of(named, "cpu") == (named,)
    assert arguments_of((x, x), "cpu") == (x, x)
    with pytest.raises(InvalidArgument, match="a batch holds a str"):
        stacked(["a", "b"], False)


def test_readers_that_end_at_different_times():
    x = torch.zeros(1, 1)
    with pytest.raises(InvalidArgument, match="one ends after 1"):
        list(side_by_side([(feed(x), 0), (feed(x, x), 0)]))
