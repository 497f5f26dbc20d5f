# SPDX-License-Identifier: MIT
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite import fuse, nn
from dnnsuite.errors import InvalidArgument
from dnnsuite.nn.random_streams import (
    advance,
    generators_of,
    new_stream,
    noted,
    repeated,
    seed_slots,
    seeds_of,
    stream_key,
)


@given(st.integers(0, 2**63), st.integers(0, 500), st.integers(0, 500))
def test_keys_of_two_places_differ(seed, a, b):
    assert (stream_key(seed, a) == stream_key(seed, b)) == (a == b)
    assert -(2**63) <= stream_key(seed, a) < 2**63


class Noisy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(x) + torch.randn(4)


def test_streams_go_on_from_where_they_were():
    array = fuse([torch.nn.Sequential(Noisy(), torch.nn.Dropout(0.5)) for _ in range(2)])
    x = torch.randn(2, 3, 4)
    array(x)
    state = nn.get_rng_state(array)
    expected = array(x), array(x)
    nn.set_rng_state(array, state)
    assert torch.equal(array(x), expected[0])
    assert torch.equal(array(x), expected[1])
    other = fuse([torch.nn.Sequential(Noisy(), torch.nn.Dropout(0.5)) for _ in range(2)])
    nn.set_rng_state(other, state)
    assert torch.equal(other(x), expected[0])
    for wrong in (fuse([Noisy() for _ in range(2)]), fuse([torch.nn.Sequential(Noisy(), torch.nn.Dropout(0.5))])):
        with pytest.raises(InvalidArgument, match="the state has streams"):
            nn.set_rng_state(wrong, state)


def test_draws_of_a_tape_are_made_again_and_no_more_of_them():
    rng, tape = new_stream(2), []
    with noted(tape):
        first = [advance(rng), advance(rng)]
    assert rng[:, 1].tolist() == [2, 2]
    with repeated(tape):
        assert all(torch.equal(advance(rng), draw) for draw in first)
        with pytest.raises(InvalidArgument, match="drew more random numbers the second time"):
            advance(rng)
    assert rng[:, 1].tolist() == [2, 2]
    assert torch.equal(advance(rng), rng - torch.tensor([0, 1]))


def test_a_seed_depends_on_key_and_step():
    rng = torch.tensor([[5, 0], [5, 1], [6, 0]])
    assert len(set(seeds_of(rng))) == 3
    a, b = (torch.rand(3, generator=generators_of(rng, torch.device("cpu"))[1]) for _ in range(2))
    assert torch.equal(a, b)


def test_some_slots_restart_as_all_do():
    def array():
        layers = torch.nn.Sequential(*[nn.Dropout(0.5, B=3) for _ in range(3)])
        layers[1].seeded_by_name = True  # as LoRA's dropout, which a model alone may not have
        return layers

    whole, part = array(), array()
    nn.seed(whole, [4, 5, 6])
    before = nn.get_rng_state(part)
    seed_slots(part, {2: 6, 0: 4})
    for name, stream in nn.get_rng_state(part).items():
        assert torch.equal(stream[[0, 2]], nn.get_rng_state(whole)[name][[0, 2]])
        assert torch.equal(stream[1], before[name][1])
