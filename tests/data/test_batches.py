# SPDX-License-Identifier: MIT
import types

import pytest
import torch

from dnnsuite.data.batches import ArrayBatches, Endless, Rollouts, shuffled
from dnnsuite.errors import BadData, InvalidArgument


def numbered(count, **arguments):
    return ArrayBatches(torch.arange(count), torch.arange(count) * 2, **arguments)


def test_each_pass_takes_all_samples_once_though_batches_span_passes():
    batches = numbered(10, batch_size=4, seed=3)
    taken = torch.cat([batches.batch(i)[0] for i in range(5)])
    assert sorted(taken[:10].tolist()) == sorted(taken[10:].tolist()) == list(range(10))
    assert taken[:10].tolist() != taken[10:].tolist()


def test_a_batch_larger_than_the_data_has_its_size():
    x, y = numbered(3, batch_size=8).batch(1)
    assert len(x) == 8
    assert torch.equal(y, 2 * x)


def test_a_batch_depends_on_its_number_and_the_seed_alone():
    def draw(generator, x, y):
        return torch.rand(len(x), generator=generator), x

    first, second = (numbered(10, batch_size=4, seed=3, prepare=draw) for _ in range(2))
    for i in (7, 0, 3):
        assert all(map(torch.equal, first.batch(i), second.batch(i)))
    second.batch(5)
    assert all(map(torch.equal, first.batch(7), second.batch(7)))
    assert not torch.equal(first.batch(0)[0], first.batch(1)[0])
    other = numbered(10, batch_size=4, seed=4, prepare=draw)
    assert not torch.equal(first.batch(0)[0], other.batch(0)[0])


@pytest.mark.parametrize(
    ("samples", "size", "words"),
    [
        ((torch.zeros(0, 2),), 4, "1 or more"),
        ((torch.zeros(3), torch.zeros(2)), 4, r"\[3, 2\]"),
        ((torch.zeros(3),), 0, "batch_size 0"),
    ],
)
def test_refuses_what_makes_no_batch(samples, size, words):
    with pytest.raises(InvalidArgument, match=words):
        ArrayBatches(*samples, batch_size=size)


def test_batches_count_from_zero():
    with pytest.raises(InvalidArgument, match="batch -1"):
        numbered(3, batch_size=1).batch(-1)


def test_batches_of_a_model_are_used_up_in_order_before_it_plays_again():
    def play(model, generator):
        made.append(model.weight * len(made))
        return [(made[-1], torch.tensor(i)) for i in range(2)]

    made, model = [], torch.nn.Linear(1, 1)
    batches = Rollouts(play, 3, {"source": "drawn"})
    found = [batches.batch_of(model, i) for i in range(5)]
    assert [int(i) for _, i in found] == [0, 1, 0, 1, 0]
    assert len(made) == 3
    assert not made[0].requires_grad
    assert batches.metrics() == {}
    batches.close()
    for wrong, what in (([], "none"), ((torch.ones(3), torch.ones(3)), "2 items that are none")):
        with pytest.raises(BadData, match=f"`play` must return a list of batches, .* at batch 0 it gave {what}"):
            Rollouts(lambda model, generator, wrong=wrong: wrong, 3, {}).batch_of(model, 0)
    with_graph = Rollouts(play, 3, {"source": "drawn"}, graph=True)
    assert with_graph.batch_of(model, 0)[0].requires_grad


def test_shuffled_parts_are_equal_and_have_each_sample_once():
    x = torch.arange(11)
    parts = shuffled((x, 2 * x), 3, torch.Generator().manual_seed(1), epochs=2)
    assert [len(own) for own, _ in parts] == [3] * 6
    assert all(torch.equal(2 * own, twice) for own, twice in parts)
    assert len(set(torch.cat([own for own, _ in parts[:3]]).tolist())) == 9


class Given:
    """Batches of these sizes, and no more."""

    record, feed = {"source": "given"}, "memory"

    def __init__(self, *sizes):
        self._sizes = iter(sizes)

    def batch(self, i):
        return torch.zeros(next(self._sizes), 3), torch.zeros(4)[: 4 if i < 2 else 3]


def test_data_that_end_are_refused():
    batches = Endless("sums", Given(4))
    assert batches.record == {"source": "given"}
    assert batches.feed == "memory"
    batches.batch(0)
    texts = Endless("sums", types.SimpleNamespace(batch=lambda i: "abc"))
    with pytest.raises(BadData, match="batch 0 of job sums must be a tuple of tensors, and is a str"):
        texts.batch(0)
    with pytest.raises(BadData, match="the data of job sums end before batch 1"):
        batches.batch(1)


def test_labels_are_as_many_in_each_batch():
    """The first tensor may vary, for example where sentences have a length of their own."""
    batches = Endless("sums", Given(4, 7, 4))
    batches.batch(0)
    batches.batch(1)
    with pytest.raises(BadData, match="batch 2 of job sums has 3 samples, and batch 0 has 4"):
        batches.batch(2)
