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
