# SPDX-License-Identifier: MIT
"""Batches of an epoch are those of the loader after `torch.manual_seed`, whoever reads beside."""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from dnnsuite.errors import InvalidArgument
from dnnsuite.tuning.feeds import Feeds
from dnnsuite.tuning.trainee import default_loss, default_measure

X, Y = torch.arange(20.0), torch.arange(20)


class Augmented(Dataset):
    """Samples to which noise of all three generators is added."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return X[index] + torch.rand(()) + random.random() + np.random.rand()


def own_generator():
    return DataLoader(TensorDataset(X, Y), 6, shuffle=True, generator=torch.Generator())


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(TensorDataset(X, Y), 6, shuffle=True),
        DataLoader(TensorDataset(X, Y), 6, shuffle=True, drop_last=True),
        DataLoader(TensorDataset(X, Y), 5, sampler=torch.utils.data.WeightedRandomSampler([1.0] * 20, 20)),
        DataLoader(TensorDataset(X, Y), 6),
    ],
)
def test_rows_of_tensors_come_as_the_loader_gives_them(loader):
    feed = Feeds(loader, None, 3).of(0, {})
    torch.manual_seed(3 + 2)
    expected = list(loader)
    found = list(feed.epoch(2))
    assert all(
        torch.equal(a, b) for one, other in zip(found, expected, strict=True) for a, b in zip(one, other, strict=True)
    )


def test_readers_side_by_side_do_not_disturb_each_other():
    feed = Feeds(DataLoader(Augmented(), 4, shuffle=True), None, 0).of(0, {})
    alone = [list(feed.epoch(epoch)) for epoch in range(2)]
    before = torch.get_rng_state()
    side_by_side = list(zip(feed.epoch(0), feed.epoch(1), strict=True))
    for epoch in range(2):
        assert all(torch.equal(a[epoch], b) for a, b in zip(side_by_side, alone[epoch], strict=True))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_generator_of_the_loaders_own_counts_by_epochs():
    feed = Feeds(own_generator(), None, 0).of(0, {})
    first, again, other = (torch.cat([x for x, _ in feed.epoch(epoch)]) for epoch in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("source", "size", "message"),
    [
        ((X, Y), None, "batch_size"),
        ((X, Y[:3]), 2, "as many of each"),
        ({"x": X}, 2, "give a DataLoader"),
        ("x", 2, "give"),
        ([{"x": X}], 2, "list of dicts"),
        ([X, Y], 2, "give a tuple"),
        (X, 2, "the data are one tensor"),
        ((X.numpy(), Y), 2, "numpy.ndarray: give tensors"),
    ],
)
def test_bad_sources(source, size, message):
    with pytest.raises(InvalidArgument, match=message):
        Feeds(source, size, 0).of(0, {})
    with pytest.raises(InvalidArgument, match="1 loaders, and there is a trial 1"):
        Feeds([own_generator()], None, 0).of(1, {})


def test_a_batch_whose_names_the_model_does_not_take_is_explained():
    batch = {"image": X, "label": Y}
    for of in (default_loss, default_measure):
        with pytest.raises(InvalidArgument, match=r"'image'.*loss=function\(model, batch\)"):
            of(torch.nn.Linear(3, 1), batch)


@pytest.mark.parametrize(
    "once", [lambda b: (each for each in b), iter, lambda b: zip(b, b, strict=True), lambda b: lambda c: iter(b)]
)
def test_data_that_can_be_read_once_are_refused(once):
    batches = [(torch.zeros(2, 4), torch.zeros(2))]
    with pytest.raises(InvalidArgument, match="can be read once: give a DataLoader"):
        Feeds(once(batches), None, 0).of(0, {})
