# SPDX-License-Identifier: MIT
import loop
import torch

from dnnsuite import training


def test_both_ways_train_alike(tmp_path):
    asked = loop.settings(width=1, batch_size=2, steps=2)
    experiment = training.experiment_of("loop", asked, training.find_data(asked), "cpu")
    assert experiment.order.steps == 2
    hand, ours = loop.by_hand(experiment), loop.by_loop(experiment, tmp_path)
    assert all(loop.cost_s(epoch) > 0 for epoch in (hand, ours))
    assert "valid acc1" in (tmp_path / "train.log").read_text()
    assert torch.get_num_threads() >= 1
