# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite.training.loading import Order, share_of, validation_batches


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
@pytest.mark.parametrize("drop_last", [True, False])
def test_processes_share_each_batch_without_loss(world_size, drop_last):
    order = Order(53, 12, seed=3, drop_last=drop_last)
    alone = list(order.batches(5))
    assert len(alone) == order.steps == (4 if drop_last else 5)
    assert order.dropped == (5 if drop_last else 0)
    seen = []
    for batch in alone:
        shares = [share_of(batch, 5, rank, world_size) for rank in range(world_size)]
        counted = [index for share in shares for index in share.indices[: share.counted]]
        assert sorted(counted) == sorted(batch.tolist())
        assert {share.whole for share in shares} == {len(batch)}
        assert all(share.indices for share in shares)
        seen += counted
    assert len(seen) == len(set(seen)) == 53 - order.dropped


def test_a_process_without_a_sample_takes_one_that_does_not_count():
    share = share_of(torch.tensor([7]), 0, rank=1, world_size=2)
    assert (share.indices, share.counted, share.whole) == ([7], 0, 1)


def test_epochs_and_seeds_differ_and_any_epoch_can_be_had_from_any_step():
    order = Order(40, 8, seed=1)
    first, second = (torch.cat(list(order.batches(epoch))).tolist() for epoch in (0, 1))
    assert first != second
    assert first != torch.cat(list(Order(40, 8, seed=2).batches(0))).tolist()
    assert torch.cat(list(order.batches(1, start=3))).tolist() == second[24:]


@pytest.mark.parametrize(("batch", "steps"), [(128, 390), (256, 195), (512, 97), (1024, 48), (2048, 24)])
def test_steps_of_cifar_are_the_originals(batch, steps):
    assert Order(50_000, batch).steps == steps
    assert Order(50_000, batch, most=8).steps == 8


@pytest.mark.parametrize("world_size", [1, 2, 3, 16])
def test_every_sample_is_validated_once(world_size):
    seen = [
        index
        for rank in range(world_size)
        for share in validation_batches(1003, 128, rank, world_size)
        for index in share.indices
    ]
    assert sorted(seen) == list(range(1003))
