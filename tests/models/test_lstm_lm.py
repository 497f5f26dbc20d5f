# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import models
from dnnsuite.errors import InvalidArgument


def make(**sizes):
    return models.LSTMLanguageModel(30, **{"width": 8, "hidden": 8, **sizes})


def test_state_carries_on():
    model = make().eval()
    tokens = torch.randint(30, (3, 7))
    whole, last = model(tokens)
    first, state = model(tokens[:, :4])
    second, again = model(tokens[:, 4:], state)
    assert whole.shape == (3, 7, 30)
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole)
    for a, b in zip(last, again, strict=True):
        assert a.shape == (2, 3, 8)
        torch.testing.assert_close(a, b)


def test_one_layer_has_no_dropout_of_its_own():
    assert make(layers=1, dropout=0.5).lstm.dropout == 0  # torch warns otherwise
    assert make(layers=2, dropout=0.5).lstm.dropout == 0.5


def test_tied_weights_are_one_parameter():
    tied = make(tied=True)
    assert tied.head.weight is tied.embedding.weight
    with pytest.raises(InvalidArgument, match="hidden=9 and width=8"):
        make(tied=True, hidden=9)
