# SPDX-License-Identifier: MIT
import torch

from dnnsuite import models, nn


def make(nn_, **sizes):
    return models.BERT(nn_, 50, **{"emsize": 12, "nhid": 20, "nlayers": 2, "nhead": 3, "max_len": 6, **sizes})


def test_scores_the_masked_positions_only():
    model = make(torch.nn).eval()
    tokens = torch.randint(50, (4, 6))
    every = torch.arange(6).expand(4, 6)
    whole = model(tokens, every).view(4, 6, 50)
    positions = torch.tensor([[0, 5], [1, 2], [3, 3], [4, 0]])
    chosen = model(tokens, positions).view(4, 2, 50)
    for n in range(4):
        torch.testing.assert_close(chosen[n], whole[n, positions[n]])


def test_position_matters():
    model = make(torch.nn).eval()
    tokens = torch.randint(50, (1, 6))
    positions = torch.zeros(1, 1, dtype=torch.long)
    assert not torch.allclose(model(tokens, positions), model(tokens.flip(1), 5 - positions))


def test_one_definition_for_array_and_plain_model():
    tokens, positions = torch.randint(50, (3, 4, 6)), torch.randint(6, (3, 4, 2))
    assert make(nn.array(3))(tokens, positions).shape == (3, 8, 50)
    assert make(nn.array(0))(tokens[0], positions[0]).shape == (8, 50)
    assert list(make(nn.array(3)).state_dict()) == list(make(torch.nn).state_dict())
