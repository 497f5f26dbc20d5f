# SPDX-License-Identifier: MIT
"""The tokenised corpus: real text, the same in every process, read from the cache the second time."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import decoders

from dnnsuite.data import text
from dnnsuite.errors import InvalidArgument, Unavailable

SENTENCE = " The quick brown fox <unk> jumps over the lazy dog , for the {i} th time . \n"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("DNNSUITE_CACHE", str(folder))
    return folder


@pytest.fixture
def wiki(tmp_path: Path) -> Path:
    (tmp_path / "wikitext-2").mkdir()
    lines = [SENTENCE.format(i=i) for i in range(200)]
    (tmp_path / "wikitext-2" / "wiki.train.tokens").write_text(" = Fox = \n" + "".join(lines))
    return tmp_path


def digest(corpus: text.Corpus) -> str:
    return hashlib.sha256(corpus.tokens.tobytes()).hexdigest()


def in_another_process(code: str) -> str:
    command = [sys.executable, "-c", f"import sys, json, hashlib\nfrom dnnsuite.data import text\n{code}"]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def test_default_text() -> None:
    corpus = text.load()
    assert corpus.tokens.dtype == np.int32
    assert len(corpus.tokens) > 60_000
    assert corpus.vocab_size == 8192
    assert corpus.tokens.min() >= 0
    assert corpus.tokens.max() < corpus.vocab_size
    assert len(np.unique(corpus.tokens)) > 3000
    assert (corpus.tokens == text.SEP_ID).sum() > 1000
    assert not np.isin(corpus.tokens, [text.PAD_ID, text.UNK_ID, text.CLS_ID, text.MASK_ID]).any()
    assert corpus.source.startswith("pydoc_data.topics of Python")
    assert corpus.licence == "PSF-2.0"


def test_same_tokens_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = digest(text.load())
    for setting in ("true", "false"):
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", setting)
        monkeypatch.setenv("DNNSUITE_CACHE", "/proc/none")  # no cache: train again
        code = "print(hashlib.sha256(text.load().tokens.tobytes()).hexdigest(), 'tokenizers' in sys.modules)"
        assert in_another_process(code).split() == [mine, "True"]


def test_second_load_imports_no_tokenizers() -> None:
    first = text.load()
    code = (
        "c = text.load(); "
        "imported = [name in sys.modules for name in ('tokenizers', 'torch')]; "
        "print(json.dumps([c.source, c.sha256, len(c.tokens), *imported]))"
    )
    assert json.loads(in_another_process(code)) == [first.source, first.sha256, len(first.tokens), False, False]


def test_cached_corpus_equals_the_fresh_one(cache: Path) -> None:
    fresh, cached = text.load(), text.load()
    assert isinstance(cached.tokens, np.memmap)
    assert not fresh.tokens.flags.writeable
    assert not cached.tokens.flags.writeable
    assert digest(fresh) == digest(cached)
    for name in ("vocab_size", "pad_id", "mask_id", "special_ids", "source", "licence", "sha256"):
        assert getattr(fresh, name) == getattr(cached, name), name


def test_truncated_cache_is_made_again(cache: Path) -> None:
    fresh = text.load()
    (file,) = cache.glob("text-*/tokens.npy")
    file.write_bytes(file.read_bytes()[:-100])
    assert digest(text.load()) == digest(fresh)


def test_wikitext(wiki: Path) -> None:
    corpus = text.load("auto", dataroot=wiki, vocab_size=400)
    assert corpus.source.startswith("WikiText, wikitext-2/wiki.train.tokens")
    assert (corpus.tokens == text.UNK_ID).sum() == 200
    assert (corpus.tokens == text.SEP_ID).sum() == 201
    assert digest(corpus) == digest(text.load("wikitext", wiki, 400))
    assert text.load("pydoc", wiki).licence == "PSF-2.0"


def test_small_text_gives_a_small_vocabulary(wiki: Path) -> None:
    corpus = text.load("wikitext", wiki)
    assert corpus.tokens.max() < corpus.vocab_size < 8192


def test_changed_file_is_read_again(wiki: Path) -> None:
    before = text.load("wikitext", wiki, 400)
    file = wiki / "wikitext-2" / "wiki.train.tokens"
    file.write_text(file.read_text().replace("fox", "vixen"))
    after = text.load("wikitext", wiki, 400)
    assert before.sha256 != after.sha256
    assert digest(before) != digest(after)


def test_empty_text(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text(" \n \n")
    with pytest.raises(InvalidArgument, match="holds no text"):
        text.load("wikitext", tmp_path)


@given(st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=8))
@settings(max_examples=40, deadline=None)
def test_tokens_are_the_text(paragraphs: list[str]) -> None:
    """Bytes are the alphabet, so nothing is unknown, nothing is lost, and each paragraph ends with [SEP]."""
    assume(not any(special in paragraph for paragraph in paragraphs for special in text.SPECIALS))
    raw = text.RawText("test", "none", "", lambda: iter(paragraphs))
    corpus = text.tokenise(raw, 300, "0")
    ends = np.flatnonzero(corpus.tokens == text.SEP_ID)
    rows = np.split(corpus.tokens, ends + 1)
    assert len(rows[-1]) == 0
    assert text.UNK_ID not in corpus.tokens
    assert corpus.tokens.max() < corpus.vocab_size <= 300
    tokenizer = text.train_tokenizer(iter(paragraphs), 300)
    tokenizer.decoder = decoders.ByteLevel()
    decoded = [tokenizer.decode(row[:-1].tolist(), skip_special_tokens=False) for row in rows[:-1]]
    assert [line.lstrip() for line in decoded] == [paragraph.lstrip() for paragraph in paragraphs]


def test_long_text_trains_on_its_beginning() -> None:
    paragraphs = iter(["abc", "de", "f", "g"])
    assert list(text.at_most(paragraphs, 4)) == ["abc", "de"]


def test_synthetic_follows_zipf_and_its_seed() -> None:
    corpus = text.load("synthetic", vocab_size=1000, seed=1)
    count = np.bincount(corpus.tokens, minlength=1000)
    assert corpus.vocab_size == len(count) == 1000
    assert count[: len(text.SPECIALS)].sum() == 0
    expected = len(corpus.tokens) / np.arange(1, 996) / (1 / np.arange(1, 996)).sum()
    most = expected > 200
    np.testing.assert_allclose(count[5:][most], expected[most], atol=0, rtol=5 / np.sqrt(200))
    assert digest(corpus) == digest(text.load("synthetic", vocab_size=1000, seed=1)) == corpus.sha256
    assert digest(corpus) != digest(text.load("synthetic", vocab_size=1000, seed=2))


def test_python_without_its_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    assert text.load("auto").source.startswith("synthetic")
    with pytest.raises(Unavailable):
        text.load("pydoc")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": "novel"}, "'novel' is not one of auto, pydoc, wikitext, synthetic"),
        ({"vocab_size": 100}, "vocab_size 100 is below 261"),
        ({"source": "wikitext"}, "needs a dataroot"),
        ({"dataroot": "/absent"}, "'/absent' is not a folder"),
    ],
)
def test_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        text.load(**arguments)  # type: ignore[arg-type]
