# SPDX-License-Identifier: MIT
import torch

from dnnsuite.training.loading import Feed
from dnnsuite.training.processes import Processes
from tiny_arrays import DATA, members


def test_models_with_the_same_order_share_batches_and_the_others_have_their_own():
    own = members()
    feed = Feed(own, Processes("cpu"))
    for step, (share, batches) in enumerate(feed.training(1, 2, [0, 1, 2]), 2):
        assert share.counted == 8
        assert batches[0] is batches[1]
        for number, each in enumerate(own):
            chosen = list(each.order.batches(1))[step]
            assert torch.equal(batches[number][0], DATA.train.inputs[chosen])
    assert step == 5
    assert [list(batches) for _, batches in feed.training(0, 5, [2])] == [[2]]
    feed.close()


def test_validation_is_loaded_once():
    feed = Feed(members(), Processes("cpu"))
    found = list(feed.validation([0, 2]))
    assert [share.counted for share, _ in found] == [4, 4, 3]
    assert all(batches[0] is batches[2] for _, batches in found)
    feed.close()
