# SPDX-License-Identifier: MIT
"""Readers of text: what they find, what they clean away, what they say when there is nothing."""

import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite.data import text
from dnnsuite.errors import InvalidArgument, Unavailable

WIKI = """\

 = Valkyria Chronicles III =

 It has 1 @,@ 000 <unk> and a pre @-@ war 2 @.@ 5 .
 = = Plot = =
 x = y
"""


def test_pydoc_is_the_documentation_of_this_python() -> None:
    raw = text.pydoc()
    paragraphs = list(raw.paragraphs())
    assert len(paragraphs) > 1000
    assert sum(map(len, paragraphs)) > 300_000
    assert any("Customizing attribute access" in paragraph for paragraph in paragraphs)
    assert not any(re.search(r"[\n\t]|  |\w \*{4}", paragraph) for paragraph in paragraphs)
    assert ".".join(map(str, sys.version_info[:3])) in raw.source
    assert raw.licence == "PSF-2.0"
    assert list(raw.paragraphs()) == paragraphs


def test_python_without_its_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(Unavailable, match=r"pydoc_data\.topics.*WikiText"):
        text.pydoc()


@pytest.mark.parametrize(
    ("line", "paragraph"),
    [
        (" = Valkyria Chronicles III = \n", "Valkyria Chronicles III"),
        (" = = = Cover version = = = \n", "Cover version"),
        ("== Raw heading ==\n", "Raw heading"),
        ("=  Two blanks  =\n", "Two blanks"),
        (" x = y \n", "x = y"),
        (" 1 @,@ 000 @-@ odd 2 @.@ 5 <unk> . \n", "1,000-odd 2.5 [UNK] ."),
        (" \n", ""),
    ],
)
def test_clean_wikitext(line: str, paragraph: str) -> None:
    assert text.clean_wikitext(line) == paragraph


@given(st.text() | st.text("= @,.-a\t"))
def test_clean_text_is_one_line_without_unknowns(line: str) -> None:
    paragraph = text.clean_wikitext(line)
    assert paragraph == paragraph.strip()
    assert "<unk>" not in paragraph
    assert len(paragraph) <= len(line.strip())


@pytest.mark.parametrize("folder", [".", "wikitext-2", "wikitext-103-raw-v1"])
@pytest.mark.parametrize("name", text.WIKITEXT_FILES)
def test_wikitext_is_found_by_its_names(tmp_path: Path, folder: str, name: str) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / name).write_text(WIKI, encoding="utf-8")
    raw = text.wikitext(tmp_path)
    assert list(raw.paragraphs()) == [
        "Valkyria Chronicles III",
        "It has 1,000 [UNK] and a pre-war 2.5 .",
        "Plot",
        "x = y",
    ]
    assert raw.source == f"WikiText, {Path(folder, name)}"
    assert raw.licence == "CC BY-SA 3.0"


def test_absent_wikitext_says_what_was_looked_for(tmp_path: Path) -> None:
    (tmp_path / "wiki.valid.tokens").write_text(WIKI)
    with pytest.raises(InvalidArgument, match=r"has no WikiText file.*wiki\.train\.tokens.*wikitext-103") as caught:
        text.wikitext(tmp_path)
    assert str(tmp_path) in str(caught.value)
    with pytest.raises(InvalidArgument, match="is not a folder"):
        text.wikitext(tmp_path / "absent")


def test_file_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes(b"\xff\xfe\x00 latin \xe9")
    with pytest.raises(InvalidArgument, match=r"train\.txt is not UTF-8"):
        list(text.wikitext(tmp_path).paragraphs())
