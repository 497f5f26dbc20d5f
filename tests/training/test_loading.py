# SPDX-License-Identifier: MIT
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from dnnsuite.errors import InvalidArgument
from dnnsuite.training.loading import Loader, LostWorker, Share


class Drawn:
    """Samples that draw from all the global generators."""

    def __len__(self):
        return 9

    def __getitem__(self, index):
        return torch.tensor([index, torch.rand(()).item(), np.random.rand(), random.random()]), index


SHARES = [Share(2, [3, 1], 2, 2), Share(2, [8], 1, 1)]


def test_batches_are_the_same_bits_with_workers_and_leave_the_generators_alone():
    before = torch.get_rng_state(), random.getstate()
    direct = [batch for _, batch in Loader(Drawn(), seed=4)(SHARES)]
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    loader = Loader(Drawn(), seed=4, workers=2)
    try:
        for _ in range(2):  # the workers stay from one epoch to the next
            found = [batch for _, batch in loader(SHARES)]
            for ours, theirs in zip(direct, found, strict=True):
                assert torch.equal(ours[0], theirs[0])
                assert torch.equal(ours[1], theirs[1])
    finally:
        loader.close()
    other = next(Loader(Drawn(), seed=4)([Share(3, [3, 1], 2, 2)]))[1]
    assert not torch.equal(other[0][:, 1:], direct[0][0][:, 1:])


def test_a_dataset_may_make_whole_batches():
    class ByBatch:
        def __len__(self):
            return 3

        def batch(self, indices, epoch):
            return torch.tensor(indices) * epoch, torch.tensor(indices)

    ((share, (inputs, labels)),) = Loader(ByBatch())([Share(5, [2, 1], 2, 2)])
    assert (share.epoch, inputs.tolist(), labels.tolist()) == (5, [10, 5], [2, 1])


class Damaged(Drawn):
    def __getitem__(self, index):
        if index == 8:
            raise InvalidArgument("8.jpg cannot be decoded: no picture")
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sample_that_cannot_be_read_is_one_sentence(workers):
    loader = Loader(Damaged(), workers=workers)
    with pytest.raises(InvalidArgument, match=r"^8\.jpg cannot be decoded: no picture$"):
        list(loader(SHARES))
    loader.close()


def test_samples_of_different_shapes_make_no_batch():
    ragged = [(torch.zeros(2), 0), (torch.zeros(3), 1)]
    with pytest.raises(InvalidArgument, match="make no batch"):
        next(Loader(ragged)([Share(0, [0, 1], 2, 2)]))


class Deadly(Drawn):
    def __getitem__(self, index):
        if index == 8:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def test_a_worker_that_is_killed_is_one_sentence_and_takes_the_others_with_it():
    loader = Loader(Deadly(), workers=2)
    with pytest.raises(LostWorker, match=r"^a process that prepares batches was ended by SIGKILL; continue"):
        list(loader(SHARES * 4))
    assert not multiprocessing.active_children()
    again = Loader(Drawn(), workers=1)  # another loader in this process is not disturbed
    assert len(list(again(SHARES))) == 2
    again.close()
    assert not multiprocessing.active_children()


KILLED_WHILE_TRAINING = """
import os, signal, threading, time, multiprocessing
from dnnsuite.training import run
from tiny_training import experiment

def kill():
    while not (os.path.exists("out/checkpoint.pt") and len(multiprocessing.active_children()) == 2):
        time.sleep(0.01)
    os.kill(multiprocessing.active_children()[-1].pid, signal.SIGKILL)

threading.Thread(target=kill, daemon=True).start()
run(experiment(epochs=100_000, workers=1), "out", quiet=True)
"""


def test_a_run_whose_worker_is_killed_ends_at_once_with_its_last_checkpoint(tmp_path):
    support = Path(__file__).parent.parent / "support"
    path = os.pathsep.join([str(support), *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_TRAINING],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    said = r"LostWorker: a process that prepares batches (was ended by SIGKILL|ended as it started); continue"
    assert re.search(said, ended.stderr.splitlines()[-1])
    position = torch.load(tmp_path / "out/checkpoint.pt", weights_only=True)["position"]
    assert position["epoch"] >= 1
