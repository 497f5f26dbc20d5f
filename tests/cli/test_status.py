# SPDX-License-Identifier: MIT
import contextlib
import signal
import sys
from pathlib import Path

import pytest
import typer

from dnnsuite._runs.interrupts import Interrupted
from dnnsuite._runs.spec import import_plugins
from dnnsuite.cli._status import FAILED, USAGE, reporting
from dnnsuite.errors import InvalidArgument


def status_of(command: object) -> int:
    def body() -> int:
        if isinstance(command, BaseException):
            raise command
        if callable(command):
            return command()
        assert isinstance(command, int)
        return command

    try:
        reporting(body)()
    except typer.Exit as ended:
        return ended.exit_code
    return 0


@pytest.mark.parametrize(
    ("command", "status", "words"),
    [
        (0, 0, ""),
        (FAILED, 1, ""),
        (InvalidArgument("no such thing"), USAGE, "dnnsuite: error: no such thing"),
        (OSError("disk on fire"), USAGE, "dnnsuite: error: disk on fire"),
        (Interrupted(signal.SIGTERM), 143, "dnnsuite: interrupted by SIGTERM"),
    ],
)
def test_each_end_has_its_status(command: object, status: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(command) == status
    assert capsys.readouterr().err.strip() == words


def test_output_that_is_closed_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the shell's `>&-` starts a command."""
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    reporting(lambda: print("said") or 0)()
    with contextlib.closing(sys.stdout), contextlib.closing(sys.stderr), pytest.raises(typer.Exit):
        reporting(lambda: 3)()


def test_an_error_of_a_plugin_is_one_line_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "raising_plugin.py").write_text("def model():\n    return [0][\n        1]\n")
    import_plugins(["raising_plugin"], [str(tmp_path)])
    assert status_of(sys.modules["raising_plugin"].model) == FAILED
    said = capsys.readouterr().err.strip()
    assert said == "dnnsuite: error: IndexError: list index out of range (raising_plugin.py, line 2)"


def test_what_nobody_expected_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        status_of(ZeroDivisionError())
