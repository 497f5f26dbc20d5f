# SPDX-License-Identifier: MIT
import itertools
import multiprocessing

import pytest
import torch

from dnnsuite.data.batches import EndlessLoader, Order
from dnnsuite.errors import InvalidArgument


class Numbers(torch.utils.data.Dataset):
    def __init__(self, count, broken=None):
        self.count, self.broken = count, broken

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index == self.broken:
            raise InvalidArgument(f"/files/{index}.jpg cannot be decoded: it is broken")
        return index, torch.rand(())


@pytest.fixture
def load():
    made = []

    def make(*arguments, **settings):
        made.append(EndlessLoader(*arguments, **settings))
        return made[-1]

    yield make
    for loader in made:
        loader.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_whole_and_go_on_over_epochs(load, workers):
    loader = load(Numbers(10), 4, workers, seed=3)
    batches = [next(loader) for _ in range(5)]  # two epochs
    assert {len(indices) for indices, _ in batches} == {4}
    seen = torch.cat([indices for indices, _ in batches])
    assert sorted(seen[:10].tolist()) == sorted(seen[10:].tolist()) == list(range(10))


def test_the_seed_decides_order_and_random_numbers(load):
    first, again, other = (
        torch.cat([torch.stack([a, b]) for a, b in (next(load(Numbers(99), 8, 2, seed=seed)),)]) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_processes_read_other_samples(load):
    halves = [next(load(Numbers(8), 4, rank=rank, world_size=2))[0] for rank in (0, 1)]
    assert sorted(torch.cat(halves).tolist()) == list(range(8))


def test_workers_run_after_the_start_and_end_with_close(load):
    before = set(multiprocessing.active_children())
    loader = load(Numbers(50), 2, workers=2)
    mine = set(multiprocessing.active_children()) - before
    assert len(mine) == 2
    assert all(process.is_alive() for process in mine)
    loader.close()
    loader.close()
    assert not any(process.is_alive() for process in mine)
    with pytest.raises(InvalidArgument, match="the loader is closed"):
        next(loader)


@pytest.mark.parametrize("workers", [0, 1])
def test_what_the_dataset_refuses_is_said_in_one_line(load, workers):
    last = int(Order(40).take(40)[-1])
    loader = load(Numbers(40, broken=last), 1, workers)
    with pytest.raises(InvalidArgument, match=r"^/files/\d+\.jpg cannot be decoded: it is broken$"):
        list(itertools.islice(loader, 40))
