# SPDX-License-Identifier: MIT
"""Schedule-free optimizers in evaluation."""

import pytest
import torch

import dnnsuite
from dnnsuite import optim
from dnnsuite.errors import InvalidArgument
from one_models import LR, ScheduleFree, by_hand


def test_schedule_free_parameters_are_the_average_in_evaluation(models, batches):
    array = dnnsuite.fuse(models)
    optimizer = optim.AdamWScheduleFree(array.parameters(), lr=LR)
    with pytest.raises(InvalidArgument, match=r"call optimizer.train\(\) before training"):
        by_hand(array, optimizer, batches[:1])
    optimizer.train()
    by_hand(array, optimizer, batches)
    optimizer.eval()
    for index, (model, back) in enumerate(zip(models, dnnsuite.unfuse(array), strict=True)):
        one = ScheduleFree(model.parameters(), betas=(0.9, 0.999), lr=LR[index], weight_decay=0.0)
        by_hand(model, one, batches[:, index])
        for mine, row in zip(back.parameters(), one.rows, strict=True):
            torch.testing.assert_close(mine.detach(), row["x"])
    optimizer.train()
    for mine, theirs in zip(array[0].parameters(), models[0].parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)
