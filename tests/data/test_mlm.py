# SPDX-License-Identifier: MIT
"""The masking rule of BERT, as properties of the batches."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dnnsuite.data import text
from dnnsuite.errors import InvalidArgument

SPECIALS = tuple(range(len(text.SPECIALS)))

# Batch 9 of the test below.
INPUTS = [[4, 38, 39, 40, 41, 42, 4, 44], [53, 54, 55, 56, 57, 58, 4, 60]]
POSITIONS = [[0, 6], [2, 6]]
TARGETS = [[37, 43], [55, 59]]


def corpus_of(tokens: np.ndarray, vocab_size: int) -> text.Corpus:
    tokens = tokens.astype(np.int32)
    return text.Corpus(tokens, vocab_size, text.PAD_ID, text.MASK_ID, SPECIALS, "test", "none", "")


@pytest.fixture(scope="module")
def corpus() -> text.Corpus:
    return text.load("synthetic", vocab_size=1000, seed=3)


@given(
    seed=st.integers(0, 2**63),
    batch_size=st.integers(1, 5),
    seq_len=st.integers(1, 40),
    fraction=st.floats(0.01, 1.0),
    special_share=st.floats(0.0, 1.0),
    number=st.integers(0, 50),
)
@settings(max_examples=40, deadline=None)
def test_rule_holds_for_any_text(
    seed: int, batch_size: int, seq_len: int, fraction: float, special_share: float, number: int
) -> None:
    generator = np.random.default_rng(seed)
    tokens = generator.integers(len(SPECIALS), 50, batch_size * seq_len * 3)
    tokens[generator.random(len(tokens)) < special_share] = text.SEP_ID
    data = text.masked(corpus_of(tokens, 50), batch_size, seq_len, seed, fraction)
    inputs, positions, targets = data.batch(number)
    chosen = max(1, round(fraction * seq_len))
    assert inputs.shape == (batch_size, seq_len)
    assert positions.shape == targets.shape == (batch_size, chosen)
    assert inputs.dtype == positions.dtype == targets.dtype == torch.int64
    assert bool((positions.diff(dim=1) > 0).all())  # ascending, so no place twice
    assert 0 <= int(positions.min()) <= int(positions.max()) < seq_len

    # With the targets put back each row is a sequence of the text: all else was untouched.
    trained = targets != text.IGNORE
    restored = inputs.scatter(1, positions, torch.where(trained, targets, inputs.gather(1, positions)))
    rows = {row.tobytes() for row in tokens.reshape(-1, seq_len)}
    assert all(row.tobytes() in rows for row in restored.numpy())
    assert not bool(torch.isin(targets, torch.tensor(SPECIALS)).any())

    # As many as there are to choose from, and P where there are enough.
    ordinary = (restored >= len(SPECIALS)).sum(1)
    assert trained.sum(1).tolist() == ordinary.clamp(max=chosen).tolist()
    changed = inputs.gather(1, positions)
    assert bool(((changed == text.MASK_ID) | (changed >= len(SPECIALS)) | ~trained).all())


def test_shares_are_those_of_bert(corpus: text.Corpus) -> None:
    data = text.masked(corpus, 32, 32, seed=6)
    chosen = data.batch(0)[1].shape[1]
    assert chosen == 5  # round(0.15 · 32)
    masked = kept = total = 0
    places = np.zeros(32)
    drawn = []
    for i in range(400):
        inputs, positions, targets = data.batch(i)
        now = inputs.gather(1, positions)
        masked += int((now == text.MASK_ID).sum())
        kept += int((now == targets).sum())
        drawn.append(now[(now != text.MASK_ID) & (now != targets)])
        total += targets.numel()
        places += np.bincount(positions.flatten().numpy(), minlength=32)
    # Four standard deviations of a binomial; the draws are fixed by the seed, so this holds always or never.
    assert abs(masked / total - 0.8) < 4 * (0.8 * 0.2 / total) ** 0.5
    # A random token is the original once in 995 times.
    assert abs(kept / total - 0.1) < 4 * (0.1 * 0.9 / total) ** 0.5 + 0.1 / 995
    share, rows = chosen / 32, 400 * 32
    assert np.abs(places / rows - share).max() < 4 * (share * (1 - share) / rows) ** 0.5
    replacements = torch.cat(drawn).numpy()
    assert replacements.min() >= len(SPECIALS)
    assert abs(replacements.mean() - (4 + 1000) / 2) < 4 * 995 / 12**0.5 / len(replacements) ** 0.5  # uniform


def test_batch_depends_on_seed_and_number_alone(corpus: text.Corpus) -> None:
    one, other = text.masked(corpus, seed=7), text.masked(corpus, seed=7)
    epoch = 131_072 // 32 // 32
    last = 2 * epoch + 1
    expected = [one.batch(i) for i in range(last + 1)]
    for i in (last, 0, epoch, 3):  # another order, over epochs
        assert all(torch.equal(a, b) for a, b in zip(expected[i], other.batch(i), strict=True))
    assert not torch.equal(one.batch(0)[0], text.masked(corpus, seed=8).batch(0)[0])


def test_batch_is_the_same_everywhere() -> None:
    """Numbers written down once: other machines and other versions of torch give the same batches."""
    data = text.masked(corpus_of(np.arange(5, 5 + 64), 100), 2, 8, seed=11, masked_fraction=0.25)
    inputs, positions, targets = data.batch(9)
    assert inputs.tolist() == INPUTS
    assert positions.tolist() == POSITIONS
    assert targets.tolist() == TARGETS


def test_epoch_takes_each_sequence_once_in_a_new_order() -> None:
    tokens = np.arange(5, 5 + 30 * 4)
    data = text.masked(corpus_of(tokens, 200), 3, 4, seed=1)
    epochs = []
    for epoch in range(2):
        batches = [data.batch(epoch * 10 + i) for i in range(10)]
        rows = [inputs.scatter(1, positions, targets) for inputs, positions, targets in batches]
        epochs.append(torch.cat(rows)[:, 0].tolist())
        assert sorted(epochs[-1]) == tokens[::4].tolist()
    assert epochs[0] != epochs[1]


def test_a_batch_may_be_changed_by_its_user(corpus: text.Corpus) -> None:
    data = text.masked(corpus)
    before = data.batch(0)[0]
    data.batch(0)[0].zero_()
    assert torch.equal(before, data.batch(0)[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size 0 is below 1"),
        ({"seq_len": -1}, "seq_len -1 is below 1"),
        ({"masked_fraction": 0.0}, r"masked_fraction 0.0 is not in \(0, 1\]"),
        ({"masked_fraction": float("nan")}, "masked_fraction nan"),
        ({"seq_len": 200_000}, r"131072 tokens, less than one sequence of 200000"),
    ],
)
def test_refused(corpus: text.Corpus, arguments: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        text.masked(corpus, **arguments)  # type: ignore[arg-type]


def test_negative_batch(corpus: text.Corpus) -> None:
    with pytest.raises(InvalidArgument, match="batch -1"):
        text.masked(corpus).batch(-1)
