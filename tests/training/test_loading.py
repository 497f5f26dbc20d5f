# SPDX-License-Identifier: MIT
import random

import numpy as np
import pytest
import torch

from dnnsuite.errors import InvalidArgument
from dnnsuite.training.loading import Loader
from dnnsuite.training.order import Share


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
