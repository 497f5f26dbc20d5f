# SPDX-License-Identifier: MIT
import random
import re
import resource
import signal

import numpy as np
import pytest
import torch
from torch import nn

from dnnsuite._files import OutputError
from dnnsuite.training import BadCheckpoint, saver
from dnnsuite.training.saver import read_checkpoint, save_checkpoint

CPU = torch.device("cpu")


def test_every_generator_goes_on_where_it_was():
    def draw():
        return (torch.rand(3).tolist(), np.random.rand(), np.random.randn(), random.random(), random.gauss(0, 1))

    draw()
    state = saver.random_state(CPU)
    expected = draw()
    saver.set_random_state(state, CPU)
    assert draw() == expected


def test_a_checkpoint_is_read_without_unpickling_objects(tmp_path):
    path = tmp_path / "c.pt"
    save_checkpoint(path, {"model": {"w": torch.ones(2)}, "random": saver.random_state(CPU)})
    state = torch.load(path, weights_only=True)
    assert state["model"]["w"].tolist() == [1, 1]
    torch.save({"format": "dnnsuite training", "model": nn.Linear(1, 1)}, path)
    with pytest.raises(BadCheckpoint, match=r"c\.pt cannot be read"):
        read_checkpoint(path)


@pytest.mark.parametrize("content", [b"", b"PK damaged", None])
def test_a_damaged_checkpoint_is_named(tmp_path, content):
    path = tmp_path / "c.pt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadCheckpoint, match=r"c\.pt cannot be read as a checkpoint"):
        read_checkpoint(path)


def test_a_checkpoint_cut_short_and_one_of_something_else(tmp_path):
    path = tmp_path / "c.pt"
    save_checkpoint(path, {"model": {"w": torch.ones(1000)}})
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(BadCheckpoint, match="cannot be read"):
        read_checkpoint(path)
    torch.save({"w": torch.ones(1)}, path)
    with pytest.raises(BadCheckpoint, match="not a checkpoint of a training run"):
        read_checkpoint(path)
    save_checkpoint(path, {"version": 99})
    with pytest.raises(BadCheckpoint, match="version 99, newer than 1"):
        read_checkpoint(path)


def test_a_checkpoint_of_another_model_changes_nothing(tmp_path):
    path = tmp_path / "c.pt"
    save_checkpoint(path, {"model": nn.Linear(3, 2).state_dict()})
    model = nn.Linear(3, 4)
    before = model.weight.clone()
    with pytest.raises(BadCheckpoint, match=r"weight has the shape \[2, 3\], \[4, 3\] in this model"):
        saver.load_model(path, model)
    assert torch.equal(model.weight, before)
    with pytest.raises(BadCheckpoint, match="only the checkpoint has bias"):
        saver.load_model(path, nn.Linear(3, 2, bias=False))
    assert saver.load_model(path, nn.Linear(3, 2)).weight.shape == (2, 3)


@pytest.fixture
def full_disk():
    """Files of this process end after 4 KiB."""
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_leaves_the_last_checkpoint_whole(tmp_path, full_disk):
    path = tmp_path / "c.pt"
    save_checkpoint(path, {"model": {"w": torch.ones(2)}})
    with pytest.raises(OutputError, match=re.escape(str(path))):
        save_checkpoint(path, {"model": {"w": torch.ones(100_000)}})
    assert read_checkpoint(path)["model"]["w"].tolist() == [1, 1]
    assert [each.name for each in tmp_path.iterdir()] == ["c.pt"]
