# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.report import FailOn, comparison_markdown, comparison_text, fail_on
from dnnsuite.results import Compared

POINTS = [
    Compared("vae", "same", 1.0, 0.99, 1.01, 10.0, 10.0, "images/s", (4, 4), None, "paired"),
    Compared("w|m", "slower", 0.9, 0.88, 0.92, 10.0, 9.0, "segments/s", (4, 4), None, "paired"),
    Compared("ssd", "inconclusive", 1.1, 0.8, 1.4, 1.0, 1.1, "images/s", (2, 3), 7, "unpaired", ("noisy",)),
    Compared("cart", "failed", reasons=("crash: \x1b[31mred",)),
]


def test_text_has_a_line_for_each_point_and_what_would_tell() -> None:
    text = comparison_text(POINTS, ("A", "B"), fail_on(["slower:5%"]))
    (line,) = [line for line in text.splitlines() if line.startswith("w|m")]
    assert line.split("  ")[-1] == "▼ slower"
    assert "-10.0 %" in line
    assert "[-12.0, -8.0] %" in line
    assert "ssd: inconclusive; about 7 more runs of each would settle it (noisy)" in text
    assert "fails on slower by 5 % or more: w|m" in text
    assert "\x1b" not in text


def test_what_is_true_of_several_points_is_said_once() -> None:
    busy = [Compared(name, "same", 1.0, 0.99, 1.01, remarks=("contended",)) for name in ("vae", "ssd")]
    text = comparison_text(busy, ("A", "B"), [])
    assert "vae, ssd: contended" in text
    assert text.count("contended") == 1


def test_markdown_is_a_table_with_the_bad_first() -> None:
    lines = comparison_markdown(POINTS, ("A", "B"), fail_on(["slower:5%,failed"])).splitlines()
    assert lines[0] == "### Speed: 1 slower, 1 same, 1 inconclusive, 1 failed"
    assert "**2 points fail the check.**" in lines
    rows = [line for line in lines if line.startswith("| ")][2:]
    assert [row.split(" | ")[0] for row in rows] == ["| cart", "| w\\|m", "| ssd", "| vae"]


def test_conditions_to_fail_on() -> None:
    assert fail_on(["slower:5%, failed", "inconclusive"]) == [
        FailOn("slower", 5.0), FailOn("failed"), FailOn("inconclusive"),
    ]  # fmt: skip
    assert [each.meets(POINTS[1]) for each in fail_on(["slower:10%", "slower:10.1", "faster"])] == [True, False, False]
    partly = Compared("vae", "faster", runs=(5, 4), failed=(0, 1), remarks=("one failed",))
    assert [each.meets(partly) for each in fail_on(["failed", "slower", "missing"])] == [True, False, False]
    assert "vae: one failed" in comparison_text([partly], ("A", "B"))
    for word in ("slow", "slower:x", "slower:5%%", "", "failed:3%"):
        with pytest.raises(InvalidArgument, match="--fail-on"):
            fail_on([word])
