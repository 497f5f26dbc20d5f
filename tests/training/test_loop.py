# SPDX-License-Identifier: MIT
"""The loop against a loop by hand, and the defects of the originals that it has not."""

import itertools
import math
import re

import pytest
import torch
from torch.nn.functional import cross_entropy

from dnnsuite._runs.failures import NotFinite
from dnnsuite.training import Data, ProfileWindow, WarmupPlateau
from dnnsuite.training.lines import Log
from dnnsuite.training.loop import Loop
from dnnsuite.training.processes import Processes
from dnnsuite.training.saver import CHECKPOINT, read_checkpoint
from tiny_training import Points, experiment, net


def loop_of(folder, **changes):
    return Loop(experiment(**changes), Processes("cpu"), folder, Log(folder))


def test_epochs_are_those_of_a_loop_by_hand(tmp_path):
    data = Data(Points(48), Points(11, seed=2), 4, "points", {})
    loop = loop_of(tmp_path, data=data)
    torch.manual_seed(0)
    model = net()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(0)
    for epoch in range(2):
        model.train()
        for batch in loop.order.batches(epoch):
            sgd.zero_grad()
            cross_entropy(model(data.train.inputs[batch]), data.train.labels[batch]).backward()
            sgd.step()
        model.eval()  # all eleven samples, in one batch
        with torch.no_grad():
            scores = model(data.valid.inputs)
            loss, right = (cross_entropy(scores, data.valid.labels), (scores.argmax(1) == data.valid.labels).sum())
    torch.manual_seed(0)
    loop.run()
    for ours, theirs in zip(loop.stepper.model.parameters(), model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    last = loop.at.history[-1]
    assert last["acc1/valid"] == right.item() / 11
    assert last["loss/valid"] == pytest.approx(loss.item())


def test_training_metrics_are_of_all_batches(tmp_path):
    """The original's are of the last batch."""

    class Scripted(torch.nn.Module):
        """Right in the first three of six steps only; gradients do nothing."""

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))
            self.calls = itertools.count()

        def forward(self, x):
            right = torch.nn.functional.one_hot(x[:, :4].argmax(1), 4).float()
            return (right if not self.training or next(self.calls) < 3 else -right) + 0 * self.weight

    loop = loop_of(tmp_path, model=Scripted, epochs=1, data=Data(Points(50), Points(11), 4, "points", {}))
    loop.run()
    assert loop.at.history[0]["acc1/train"] == 0.5
    assert loop.at.history[0]["acc1/valid"] == 1.0


def test_log_lines_are_sc20s_and_none_is_of_one_batch(tmp_path):
    loop = loop_of(tmp_path)
    loop.run()
    text = (tmp_path / "train.log").read_text()
    lines = re.findall(r"^INFO - Epoch: (\d+), Iteration: (\d+), Avg img/sec: ([\d.]+)$", text, re.M)
    assert [tuple(map(int, line[:2])) for line in lines] == [(1, 2), (1, 4), (1, 5), (2, 2), (2, 4), (2, 5)]
    assert len(re.findall(r"^INFO - Time taken for epoch [12] is [\d.]+ sec$", text, re.M)) == 2
    assert len(re.findall(r"^INFO - train acc1=[\d.]+, valid acc1=[\d.]+$", text, re.M)) == 2
    assert sum(sample.items for sample in loop.samples) == 2 * 48


class Spoiled(Points):
    def __getitem__(self, index):
        x, label = super().__getitem__(index)
        return (x * math.nan if index == self.bad else x), label


@pytest.mark.parametrize("log_every", [1, 2, 20])
def test_nan_stops_with_the_step_and_the_last_good_checkpoint(tmp_path, log_every):
    data = Data(Spoiled(50), Points(11), 4, "points", {})
    data.train.bad = -1
    loop = loop_of(tmp_path, data=data, epochs=3, log_every=log_every)
    order = loop.order
    first = set(torch.cat(list(order.batches(0))).tolist())
    # A sample that the first epoch leaves out, and the second has in its batch number i.
    data.train.bad, i = next(
        (index, i) for i, batch in enumerate(order.batches(1)) for index in batch.tolist() if index not in first
    )
    with pytest.raises(NotFinite) as raised:
        loop.run()
    assert f"the loss is NaN or infinite in step {6 + i} (epoch 2, iteration {i})" in str(raised.value)
    assert str(tmp_path / CHECKPOINT) in str(raised.value)
    state = read_checkpoint(tmp_path / CHECKPOINT)
    assert state["position"]["epoch"] == 1
    assert all(each.isfinite().all() for each in state["model"].values() if each.is_floating_point())


def test_nan_before_any_checkpoint(tmp_path):
    data = Data(Spoiled(50), Points(11), 4, "points", {})
    data.train.bad = next(iter(loop_of(tmp_path).order.batches(0)))[0].item()
    with pytest.raises(NotFinite, match=r"step 0 .*; there is no checkpoint yet"):
        loop_of(tmp_path, data=data).run()


def test_infinite_parameters_are_never_saved(tmp_path):
    loop = loop_of(tmp_path)
    with torch.no_grad():
        loop.stepper.model[0].weight[0, 0] = torch.inf
    with pytest.raises(NotFinite, match="a parameter"):
        loop.save()
    assert not (tmp_path / CHECKPOINT).exists()


def plateau(optimizer, steps):
    return WarmupPlateau(optimizer, 1, patience=0)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("checkpoint_every", [0, 4])
def test_resumed_is_as_if_never_stopped_to_the_bit(tmp_path, precision, checkpoint_every):
    changes = {"epochs": 5, "schedule": plateau, "precision": precision}
    (tmp_path / "whole").mkdir()
    whole = loop_of(tmp_path / "whole", **changes)
    whole.run()
    broken = loop_of(tmp_path, **changes, checkpoint_every=checkpoint_every)
    calls = itertools.count()

    def cut(_module, _inputs):
        if broken.stepper.model.training and next(calls) == 17:
            raise RuntimeError("the node died")

    broken.stepper.model.register_forward_pre_hook(cut)
    with pytest.raises(RuntimeError, match="node died"):
        broken.run()
    torch.manual_seed(99)
    resumed = loop_of(tmp_path, **changes)
    resumed.resume(tmp_path / CHECKPOINT, read_checkpoint(tmp_path / CHECKPOINT))
    assert (resumed.at.epoch, resumed.at.iteration) == (2, 4 if checkpoint_every else 0)
    resumed.run()
    for (name, ours), theirs in zip(
        resumed.stepper.model.state_dict().items(), whole.stepper.model.state_dict().values(), strict=True
    ):
        assert torch.equal(ours, theirs), name
    timed = ("seconds/train", "seconds/valid", "minutes", "images_per_s")
    for ours, theirs in zip(resumed.at.history, whole.at.history, strict=True):
        assert {k: v for k, v in ours.items() if k not in timed} == {k: v for k, v in theirs.items() if k not in timed}
    assert resumed.stepper.scaler.state_dict() == whole.stepper.scaler.state_dict()
    assert len({row["learning_rate"] for row in whole.at.history}) > 1


def test_a_profiled_epoch_ends_early_and_has_its_phases(tmp_path):
    loop = loop_of(tmp_path, profile=ProfileWindow(2, 3))
    loop.run()
    assert loop.at.step == 6
    assert {len(all_s) for all_s in loop.phases.seconds().values()} == {3}


def test_the_best_checkpoint_is_kept_apart(tmp_path):
    loop = loop_of(tmp_path, epochs=4)
    loop.run()
    best = max(loop.at.history, key=lambda row: row["acc1/valid"])
    assert torch.load(tmp_path / "best.pt", weights_only=True)["epoch"] == best["epoch"]
