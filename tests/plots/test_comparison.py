# SPDX-License-Identifier: MIT
from dnnsuite.plots import comparison
from dnnsuite.results import Compared


def test_a_line_for_each_point() -> None:
    points = [
        Compared("vae", "slower", 0.9, 0.85, 0.95),
        Compared("wlm", "inconclusive", 1.1),
        Compared("ssd", "failed"),
    ]
    ax = comparison(points)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["vae", "wlm", "ssd"]
    assert [text.get_text().strip() for text in ax.texts] == ["failed"]
    (drawn, *_) = ax.containers
    assert round(float(drawn.lines[0].get_xdata()[0]), 3) == -10.0


def test_each_verdict_is_named_once() -> None:
    points = [
        Compared("a", "slower", 0.9, 0.8, 0.95),
        Compared("b", "slower", 0.8, 0.7, 0.9),
        Compared("c", "same", 1.0, 1, 1),
    ]
    legend = comparison(points).get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["slower", "same"]
    assert comparison([Compared("a", "failed")]).get_legend() is None
