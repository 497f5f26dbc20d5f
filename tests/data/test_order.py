# SPDX-License-Identifier: MIT
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite.data.batches import Order
from dnnsuite.errors import InvalidArgument


@given(st.integers(1, 40), st.lists(st.integers(1, 60), min_size=1, max_size=5), st.integers(0, 2**31))
def test_each_epoch_has_every_sample_once(count, sizes, seed):
    order, again = Order(count, seed), Order(count, seed)
    taken = torch.cat([order.take(n) for n in sizes])
    assert len(taken) == sum(sizes)
    assert torch.equal(taken, again.take(sum(sizes)))  # however it is cut
    for epoch in taken[: len(taken) // count * count].reshape(-1, count):
        assert sorted(epoch.tolist()) == list(range(count))


@given(st.integers(1, 4), st.integers(0, 30))
def test_processes_share_an_epoch_without_overlap(world_size, more):
    count = world_size + more
    shards = [Order(count, 7, rank, world_size) for rank in range(world_size)]
    seen = [shard.take(len(range(rank, count, world_size))).tolist() for rank, shard in enumerate(shards)]
    assert sorted(itertools.chain.from_iterable(seen)) == list(range(count))


def test_more_processes_than_samples_are_refused():
    with pytest.raises(InvalidArgument, match="2 samples are not enough for 3 processes"):
        Order(2, world_size=3)
