# SPDX-License-Identifier: MIT
"""Pairs of sentences: WMT16's files, whole and damaged; the synthetic ones; batches of about one length."""

import numpy as np
import pytest
import torch

from dnnsuite.data import translation
from dnnsuite.errors import InvalidArgument, Unavailable

PIECES = ["the", "do@@", "g", "der", "Hund", "cat"]
ENGLISH = "the do@@ g\nthe cat bird\nthe the the the the\n"
GERMAN = "der Hund\nder\nder der\n"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("DNNSUITE_CACHE", str(folder))
    return folder


@pytest.fixture
def wmt(tmp_path):
    folder = tmp_path / "wmt16"
    folder.mkdir()
    (folder / "vocab.bpe.32000").write_text("\n".join(PIECES) + "\n")
    (folder / "train.tok.clean.bpe.32000.en").write_text(ENGLISH)
    (folder / "train.tok.clean.bpe.32000.de").write_text(GERMAN)
    return folder


def rows(sentences):
    return [sentences[i].tolist() for i in range(len(sentences.lengths))]


def test_wmt16(wmt):
    pairs = translation.load("auto", wmt.parent)
    # <s> is 2 and <\s> 3; pieces count from 4; "bird" is unknown, 1.
    assert rows(pairs.source) == [[2, 4, 5, 6, 3], [2, 4, 9, 1, 3], [2, 4, 4, 4, 4, 4, 3]]
    assert rows(pairs.target) == [[2, 7, 8, 3], [2, 7, 3], [2, 7, 7, 3]]
    assert pairs.vocab_size == 10
    assert pairs.origin.count == 3
    again = translation.load("real", wmt)
    assert rows(again.source) == rows(pairs.source)
    assert again.origin == pairs.origin
    short = translation.load("real", wmt, max_length=5)
    assert rows(short.source) == rows(pairs.source)[:2]
    assert rows(short.target) == rows(pairs.target)[:2]
    assert short.origin.count == 2


def test_damaged_files(wmt, cache):
    english, german = (wmt / f"train.tok.clean.bpe.32000.{language}" for language in ("en", "de"))
    german.write_text("der Hund\nder\n")
    with pytest.raises(InvalidArgument, match=r"32000\.de ends after line 2, and the other file has 3"):
        translation.load("auto", wmt)
    german.write_bytes(b"der\n\xff\n\n")
    with pytest.raises(InvalidArgument, match=r"32000\.de, line 2: not UTF-8"):
        translation.load("auto", wmt)
    english.write_text("")
    with pytest.raises(InvalidArgument, match=r"32000\.en is empty"):
        translation.load("auto", wmt)
    english.unlink()
    with pytest.raises(InvalidArgument, match=r"has no train\.tok\.clean\.bpe\.32000\.en"):
        translation.load("auto", wmt)
    assert not list(cache.glob("pairs-*/"))


def test_a_damaged_cache_is_made_again(wmt, cache):
    whole = rows(translation.load("auto", wmt).source)
    (file,) = cache.glob("pairs-*/source-pieces.npy")
    file.write_bytes(file.read_bytes()[:-30])
    assert rows(translation.load("auto", wmt).source) == whole


def test_refused(tmp_path):
    with pytest.raises(Unavailable, match=r"WMT16 .*of no dataroot"):
        translation.load("real")
    with pytest.raises(InvalidArgument, match="max_length must be 3 or more"):
        translation.load(max_length=2)
    with pytest.raises(InvalidArgument, match="vocab_size must be above 4"):
        translation.load(vocab_size=4)


def test_nothing_short_enough(wmt):
    with pytest.raises(InvalidArgument, match="no pair of sentences of 3 pieces or fewer"):
        translation.load("auto", wmt, max_length=3)


def test_synthetic_lengths_and_words():
    pairs = translation.load(vocab_size=1000, seed=1)
    words = pairs.source.lengths - 2
    assert np.array_equal(pairs.source.lengths, pairs.target.lengths)
    assert (words.min() >= 1) & (words.max() == 48)
    assert np.median(words) == 22
    inner = words[(words > 1) & (words < 48)]
    assert np.log(inner).std() == pytest.approx(0.55, abs=0.05)  # 0.6 less what the cut takes
    assert (pairs.source.pieces.min(), pairs.target.pieces.min()) == (translation.BEGIN, translation.BEGIN)
    assert pairs.source.pieces.max() < 1000
    # One word of the one language is always the same of the other.
    meanings = np.unique(np.stack([pairs.source.pieces, pairs.target.pieces]), axis=1)
    assert len(np.unique(meanings[0])) == len(np.unique(meanings[1])) == meanings.shape[1]
    assert pairs.origin.sha256 == translation.load(vocab_size=1000, seed=1).origin.sha256
    assert pairs.origin.sha256 != translation.load(vocab_size=1000, seed=2).origin.sha256


def test_an_epoch_has_every_pair_once_in_batches_of_one_length():
    pairs = translation.load(vocab_size=100, seed=0)
    batches = translation.Batches(pairs, 64, seed=3)
    seen, spread = [], []
    for rows_of_batch in batches._order:
        seen += rows_of_batch.tolist()
        spread.append(np.ptp(pairs.source.lengths[rows_of_batch]))
    assert sorted(seen) == list(range(20_480))
    assert np.mean(spread) < 2
    first = [batches.next() for _ in range(320)]
    assert all(int(batch.lengths.diff().max()) <= 0 for batch in first)
    second = batches.next()
    assert not torch.equal(second.lengths, first[0].lengths)
    assert torch.equal(translation.Batches(pairs, 64, seed=3).next().source, first[0].source)


def test_a_batch_is_padded_columns(wmt):
    batch = translation.Batches(translation.load("auto", wmt), 3).next()
    assert batch.lengths.tolist() == [7, 5, 5]
    assert batch.source[:, 0].tolist() == [2, 4, 4, 4, 4, 4, 3]
    assert batch.source[5:, 1:].tolist() == [[0, 0], [0, 0]]
    assert batch.target[:, 0].tolist() == [2, 7, 7, 3]
    with pytest.raises(InvalidArgument, match="3 pairs are less than one batch of 4"):
        translation.Batches(translation.load("auto", wmt), 4)
