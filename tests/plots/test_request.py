# SPDX-License-Identifier: MIT
from pathlib import Path

import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.plots import Request


@pytest.mark.parametrize(
    ("save", "files"),
    [
        (None, ["out/speed.csv", "out/speed.png"]),
        ("fig.pdf", ["fig.csv", "fig.pdf"]),
        ("a/fig.svg", ["a/fig.csv", "a/fig.svg"]),
        ("a/prefix", ["a/prefix.csv", "a/prefix.png"]),
        ("v1.5", ["v1.5.csv", "v1.5.png"]),
    ],
)
def test_a_figure_is_named_by_suffix_or_by_prefix(save: str | None, files: list[str]) -> None:
    request = Request((), Path(save) if save else None)
    assert list(map(str, request.files(Path("out/speed")))) == files


def test_words_before_the_suffix() -> None:
    request = Request((), Path("fig.pdf"))
    assert str(request.file(Path("x"), more="-epoch")) == "fig-epoch.pdf"


def test_another_kind_of_picture_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"--save fig\.jpg: a figure's name ends in one of \.png"):
        Request((), Path("fig.jpg")).files(Path("x"))
    with pytest.raises(InvalidArgument, match=r"--save fig\.pgn: .*did you mean '\.png'"):
        Request((), Path("fig.pgn")).files(Path("x"))
    assert Request((), Path("lr0.1")).files(Path("x"))[1].name == "lr0.1.png"
