# SPDX-License-Identifier: MIT
"""Text by word: WikiText's files, whole and damaged; what stands in for them."""

import numpy as np
import pytest

from dnnsuite.data import text, words
from dnnsuite.errors import InvalidArgument

TRAIN, VALID, TEST = " = Fox = \n \n the fox , the dog \n", "the cat \n", "a dog \n"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("DNNSUITE_CACHE", str(folder))
    return folder


@pytest.fixture
def wiki(tmp_path):
    folder = tmp_path / "wikitext-2"
    folder.mkdir()
    for part, content in (("train", TRAIN), ("valid", VALID), ("test", TEST)):
        (folder / f"wiki.{part}.tokens").write_text(content)
    return tmp_path


def test_wikitext_by_word(wiki):
    data = words.load("auto", wiki)
    #                                 =  Fox =  eos eos the fox ,  the dog eos
    assert data.train.tolist() == [0, 1, 0, 2, 2, 3, 4, 5, 3, 6, 2]
    assert data.valid.tolist() == [3, 7, 2]
    assert data.vocab_size == 9  # and "a" of the test file
    assert data.origin.source == "WikiText, wikitext-2/wiki.train.tokens, by word"
    assert data.origin.licence == "CC BY-SA 3.0"
    assert data.origin.count == 11


def test_other_names_and_no_test_file(tmp_path):
    (tmp_path / "train.txt").write_text(TRAIN)
    (tmp_path / "valid.txt").write_text(VALID)
    assert words.load("real", tmp_path).vocab_size == 8


def test_the_second_time_it_comes_from_the_cache(wiki, cache):
    fresh, cached = words.load("real", wiki), words.load("auto", wiki)
    assert isinstance(cached.train, np.memmap)
    assert (fresh.vocab_size, fresh.origin) == (cached.vocab_size, cached.origin)
    assert np.array_equal(fresh.train, cached.train)
    (file,) = cache.glob("words-*/train.npy")
    file.write_bytes(file.read_bytes()[:-4])
    assert np.array_equal(words.load("real", wiki).train, fresh.train)


def test_documentation_stands_in_and_the_vocabulary_stays(tmp_path):
    data = words.load(vocab_size=1000)
    corpus = text.load(vocab_size=1000)
    assert np.array_equal(np.concatenate([data.train, data.valid]), corpus.tokens)
    assert len(data.valid) == len(corpus.tokens) // 10
    assert data.origin.source == corpus.source
    assert words.load("real", vocab_size=1000).origin == data.origin
    assert words.load("auto", tmp_path, vocab_size=1000).origin == data.origin
    assert words.load("synthetic", vocab_size=500).train.max() < 500


def test_padded_vocabulary(wiki):
    data = words.load("auto", wiki)
    assert [words.pad_vocabulary(data, n).vocab_size for n in (1, 8, 9)] == [9, 16, 9]


def test_refused(wiki):
    folder = wiki / "wikitext-2"
    (folder / "wiki.valid.tokens").write_bytes(b"fine\n\xff\xfe broken\n")
    with pytest.raises(InvalidArgument, match=r"wiki\.valid\.tokens, line 2: not UTF-8"):
        words.load("real", wiki)
    (folder / "wiki.valid.tokens").write_bytes(b"")
    with pytest.raises(InvalidArgument, match=r"wiki\.valid\.tokens is empty"):
        words.load("real", wiki)
    (folder / "wiki.valid.tokens").unlink()
    with pytest.raises(InvalidArgument, match=r"has wiki\.train\.tokens but not wiki\.valid\.tokens"):
        words.load("real", wiki)
    with pytest.raises(InvalidArgument, match="is not a folder"):
        words.load("auto", wiki / "absent")
    with pytest.raises(InvalidArgument, match="'novel' is not one of auto, real, synthetic"):
        words.load("novel")
