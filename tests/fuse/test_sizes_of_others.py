# SPDX-License-Identifier: MIT
"""Layers whose tensors are of other sizes than their attributes say, as pruning and tied weights leave them."""

import torch

from helpers import check_matches_models, make_models


class Pruned(torch.nn.Module):
    """Channels were taken out of its weights; `out_features`, `in_channels` and the like are as they were."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3)
        self.first, self.second = torch.nn.Linear(8, 6), torch.nn.Linear(6, 2)
        self.norm = torch.nn.LayerNorm(4)
        keep = torch.nn.Parameter
        self.first.weight, self.first.bias = (keep(self.first.weight[:4].detach()), keep(self.first.bias[:4].detach()))
        self.second.weight = keep(self.second.weight[:, :4].detach())
        self.conv.weight = keep(self.conv.weight[:, :2].detach())

    def forward(self, x):
        pooled = torch.relu(self.conv(x)).mean((-1, -2))
        return self.second(self.norm(self.first(pooled)))


def test_pruned_layers_are_fused_as_they_compute():
    models = make_models(Pruned, 3, torch.float64)
    check_matches_models(models, torch.randn(3, 5, 2, 6, 6, dtype=torch.float64))


def test_a_transposed_description_of_a_tied_head():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = torch.nn.Embedding(7, 4), torch.nn.Linear(7, 4, bias=False)
            self.head.weight = self.table.weight

        def forward(self, x):
            return self.head(self.table(x))

    models = make_models(Tied, 3, torch.float64)
    array = check_matches_models(models, torch.randint(7, (3, 5)))
    assert len(list(array.parameters())) == 1
