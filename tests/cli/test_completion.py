# SPDX-License-Identifier: MIT
"""TAB completes names, and the values that options accept."""

import pytest

from dnnsuite.cli._completion import beginning


@pytest.mark.parametrize(
    ("incomplete", "words"), [("", ["hfta", "mps", "mig"]), ("m", ["mps", "mig"]), ("mps,h", ["mps,hfta"]), ("x", [])]
)
def test_words_complete_after_commas(incomplete: str, words: list[str]) -> None:
    assert beginning(incomplete, ["hfta", "mps", "mig"]) == words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("dnnsuite run toy_", ["toy_lstm", "toy_reg"]),
        ("dnnsuite data where mn", ["mnist"]),
        ("dnnsuite tune --algorithm h", ["hyperband", "halving"]),
        ("dnnsuite pro", ["profile"]),
    ],
)
def test_the_shell_completes(line: str, words: list[str], monkeypatch, capsys) -> None:
    from dnnsuite.cli.app import main

    monkeypatch.setenv("_DNNSUITE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 0
    assert capsys.readouterr().out.split() == words
