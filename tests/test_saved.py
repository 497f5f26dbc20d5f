# SPDX-License-Identifier: MIT
"""A disk that is full is told by the name of the file, by a run and by a sweep."""

import os
import re
import resource
import signal

import pytest
import torch

import dnnsuite
from dnnsuite._files import OutputError
from dnnsuite._saved import load_tensors, save_tensors
from dnnsuite.training import run
from tiny_training import experiment


@pytest.fixture
def full_disk():
    """No file of this process grows past some bytes."""
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limited(size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))

    yield limited
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_what_was_there_before_stays(tmp_path, full_disk):
    path = tmp_path / "a.pt"
    save_tensors(path, {"w": torch.ones(2)})
    full_disk(2000)
    with pytest.raises(OutputError, match=re.escape(f"cannot write {path}: File too large")):
        save_tensors(path, {"w": torch.ones(10_000)})
    assert torch.load(path, weights_only=True)["w"].tolist() == [1, 1]
    assert os.listdir(tmp_path) == ["a.pt"]


@pytest.mark.parametrize("size", [1500, 3000])
def test_a_sweep_and_a_run_name_the_file(tmp_path, full_disk, size):
    def sweep(out):
        data = torch.ones(16, 8), torch.zeros(16, dtype=torch.long)
        dnnsuite.sweep(
            lambda c: torch.nn.Linear(8, 200), {"lr": [0.1]}, data, batch_size=8, out=out, quiet=True, threads=1
        )

    full_disk(size)
    for work in (sweep, lambda out: run(experiment(), out, quiet=True)):
        with pytest.raises(OutputError, match=r"cannot write .*\.(pt|json|csv)"):
            work(tmp_path / work.__name__.strip("<>"))


def test_a_damaged_number_is_seen(tmp_path):
    path = tmp_path / "state.pt"
    save_tensors(path, {"weight": torch.full((300,), 1.5)})
    whole = path.read_bytes()
    assert torch.equal(load_tensors(path)["weight"], torch.full((300,), 1.5))
    place = whole.index(torch.full((300,), 1.5).numpy().tobytes()) + 402
    path.write_bytes(whole[:place] + b"\1" + whole[place + 1 :])
    assert torch.load(path, weights_only=True)["weight"].unique().numel() == 2  # torch does not see it
    with pytest.raises(ValueError, match=r"damaged: .*data/0 is not what was written"):
        load_tensors(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="damaged"):
        load_tensors(path)
