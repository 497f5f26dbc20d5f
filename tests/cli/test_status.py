# SPDX-License-Identifier: MIT
import signal

import pytest
import typer

from dnnsuite._runs.interrupts import Interrupted
from dnnsuite.cli._status import FAILED, USAGE, reporting
from dnnsuite.errors import InvalidArgument


def status_of(command: object) -> int:
    def body() -> int:
        if isinstance(command, BaseException):
            raise command
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


def test_what_nobody_expected_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        status_of(ZeroDivisionError())
