# SPDX-License-Identifier: MIT
"""Random numbers: those that the reference defines, of the distribution that was asked for, the same in any company."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch.library import opcheck

import random_reference as reference
from dnnsuite import ops

STREAM = torch.tensor([[3, 0], [-4, 2**40 + 7], [2**62 + 5, 1]])
KINDS = [("uniform", -1.0, 3.0), ("normal", 0.5, 2.0), ("bernoulli", 0.3, 0.0), ("exponential", 1.7, 0.0)]
DTYPES = [torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("elements", [1, 15, 64, 65, 200, 20000])
@pytest.mark.parametrize(("kind", "first", "second"), KINDS)
def test_numbers_are_the_reference(kind, first, second, elements, dtype):
    like = torch.empty(3, elements, dtype=dtype)
    drawn = ops.random_numbers(like, STREAM, kind, first, second)
    wanted = reference.random_numbers(STREAM, like.shape, dtype, kind, first, second)
    torch.testing.assert_close(drawn, wanted, rtol=2e-6, atol=1e-5 if dtype == torch.float32 else 1e-14)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("kind", "first", "second", "law"),
    [
        ("uniform", -1.0, 3.0, stats.uniform(-1, 4)),
        ("normal", 0.5, 2.0, stats.norm(0.5, 2)),
        ("exponential", 1.7, 0.0, stats.expon(scale=1 / 1.7)),
    ],
)
def test_distribution_is_the_law(kind, first, second, law, dtype):
    drawn = ops.random_numbers(torch.empty(3, 100_000, dtype=dtype), STREAM, kind, first, second)
    for own in drawn:
        assert stats.kstest(own.numpy(), law.cdf).pvalue > 1e-4
    one = drawn[0] - drawn[0].mean()
    for lag in (1, 2, 16, 32, 64):  # numbers of one call, and of neighbouring calls
        assert abs((one[lag:] * one[:-lag]).mean() / one.var()) < 0.02
    assert abs((drawn[0] - drawn[0].mean()).mul(drawn[1] - drawn[1].mean()).mean() / one.var()) < 0.02


def test_ones_are_as_frequent_as_asked():
    drawn = ops.random_numbers(torch.empty(3, 100_000), STREAM, "bernoulli", 0.3)
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    assert (drawn.mean(1) - 0.3).abs().max() < 0.01


@pytest.mark.parametrize("kind", ["uniform", "normal", "bernoulli", "exponential"])
def test_a_model_draws_the_same_alone(kind):
    together = ops.random_numbers(torch.empty(3, 5, 41), STREAM, kind, 0.25, 0.5)
    for i in range(3):
        alone = ops.random_numbers(torch.empty(1, 5, 41), STREAM[i : i + 1], kind, 0.25, 0.5)
        assert torch.equal(alone[0], together[i])
    apart = torch.stack([STREAM, STREAM + 1], -1)[..., 0]  # with gaps in memory
    assert torch.equal(ops.random_numbers(torch.empty(3, 5, 41), apart, kind, 0.25, 0.5), together)


def test_bounds_are_kept():
    drawn = ops.random_numbers(torch.empty(3, 200_000), STREAM, "uniform", 1.0, 1.0 + 2**-22)
    assert drawn.min() == 1.0
    assert drawn.max() < 1.0 + 2**-22
    assert ops.random_numbers(torch.empty(3, 7), STREAM, "uniform", 2.0, 2.0).eq(2).all()
    assert ops.random_numbers(torch.empty(3, 10**6), STREAM, "exponential", 1.0).isfinite().all()


def test_another_step_draws_others():
    like = torch.empty(3, 1000)
    a = ops.random_numbers(like, STREAM, "normal", 0.0, 1.0)
    b = ops.random_numbers(like, STREAM + torch.tensor([0, 1]), "normal", 0.0, 1.0)
    assert (a == b).float().mean() < 0.01


def test_it_is_a_complete_operator():
    opcheck(torch.ops.dnnsuite.random_numbers, (torch.empty(3, 9), STREAM, "normal", 0.0, 1.0))


def test_no_numbers_and_wrong_arguments():
    assert ops.random_numbers(torch.empty(3, 0), STREAM, "normal", 0.0, 1.0).shape == (3, 0)
    with pytest.raises(
        RuntimeError, match="distribution must be uniform, normal, bernoulli or exponential, not cauchy"
    ):
        ops.random_numbers(torch.empty(3, 2), STREAM, "cauchy", 0.0, 1.0)
    with pytest.raises(RuntimeError, match="rng must have shape"):
        ops.random_numbers(torch.empty(2, 2), STREAM, "normal", 0.0, 1.0)


@pytest.mark.parametrize(
    ("dtype", "own"), [(torch.float32, True), (torch.float64, True), (torch.bfloat16, False), (torch.int64, False)]
)
def test_only_what_it_can_draw(dtype, own):
    assert ops.draws_numbers(torch.empty(3, 2, dtype=dtype), STREAM) is own


# Philox4x32-10 of Random123's known-answer file: counter, key, result.
KNOWN = [
    ("00000000" * 4, "00000000" * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff" * 4, "ffffffff" * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a8885a308d313198a2e03707344", "a4093822299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text):
    return tuple(int(text[i : i + 8], 16) for i in range(0, len(text), 8))


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_known_answers(counter, key, result):
    got = reference.philox4x32(words(counter), words(key), rounds=10)
    assert tuple(int(word) for word in got) == words(result.replace(" ", ""))


@pytest.mark.parametrize(("p", "threshold"), [(0.0, 0), (0.5, 32768), (0.1, 6554), (1.0, 65536)])
def test_threshold_of_a_rate(p, threshold):
    assert reference.dropout_threshold(p) == threshold


def test_every_half_word_is_used_once():
    """Within a block, 128 elements take 128 different 16-bit numbers: as many values as chance gives."""
    mask = reference.dropout_mask(torch.tensor([0.5]), torch.tensor([[1, 2]]), (1, 128 * 64))
    per_lane = mask.view(64, 8, 16).numpy() == 0
    assert np.all(np.abs(per_lane.mean(axis=(0, 2)) - 0.5) < 0.1)


def test_shape_and_scale_of_a_mask():
    mask = reference.dropout_mask(torch.tensor([0.25, 0.0]), torch.tensor([[1, 2], [3, 4]]), (2, 3, 5))
    assert mask.shape == (2, 3, 5)
    assert set(mask[0].unique().tolist()) == {0.0, torch.tensor(4 / 3).item()}
    assert torch.equal(mask[1], torch.ones(3, 5))
    assert reference.dropout_mask(torch.zeros(0), torch.zeros(0, 2, dtype=torch.int64), (0, 3)).shape == (0, 3)
