# SPDX-License-Identifier: MIT
import loop
import torch

from dnnsuite import training


def test_epochs_by_hand_and_by_the_loop_take_turns(tmp_path):
    asked = loop.settings(width=1, batch_size=2, steps=2).changed({"max_epochs": 2})
    experiment = training.experiment_of("loop", asked, training.find_data(asked), "cpu")
    assert experiment.order.steps == 2
    epoch, turns = loop.by_hand(experiment), []
    seconds = loop.by_loop(experiment, tmp_path, lambda: turns.append(epoch()))
    assert len(turns) == len(seconds) == 2
    assert all(each > 0 for each in seconds)
    assert "valid acc1" in (tmp_path / "train.log").read_text()
    assert torch.get_num_threads() >= 1
