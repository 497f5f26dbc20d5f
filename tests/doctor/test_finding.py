# SPDX-License-Identifier: MIT
"""The three outcomes of a look, and files that may not be there."""

from pathlib import Path

from dnnsuite.doctor import _finding


def test_outcomes() -> None:
    assert _finding.ok("2 CPUs") == ("ok", "2 CPUs", "")
    assert _finding.warning("busy", "wait") == ("warning", "busy", "wait")
    assert _finding.missing("no GPU", "buy one") == ("missing", "no GPU", "buy one")


def test_read(tmp_path: Path) -> None:
    (tmp_path / "enabled").write_text("always [madvise] never\n")
    assert _finding.read(tmp_path / "enabled") == "always [madvise] never"
    assert _finding.read(tmp_path / "absent") is None
    assert _finding.read(tmp_path) is None
