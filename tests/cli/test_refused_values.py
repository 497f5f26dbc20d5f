# SPDX-License-Identifier: MIT
import pytest
import typer

from command_line import status
from dnnsuite.cli._command import Commands

REFUSED = {
    "throughput vae --budget 10m": "Invalid value for '--budget': '10m' is not a number.",
    "profile vae --start-iteration 1.5": "Invalid value for '--start-iteration': '1.5' is not a whole number.",
    "pin run --timeout 1m -- true": "Invalid value for '--timeout': '1m' is not a number.",
}


@pytest.mark.parametrize("line", REFUSED)
def test_a_value_of_another_type_is_named(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*line.split()) == 2
    assert REFUSED[line] in capsys.readouterr().err


def test_other_refusals_stay_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    app = typer.Typer(cls=Commands, rich_markup_mode=None)

    @app.callback()
    def start() -> None:
        pass

    @app.command()
    def share(size: str) -> None:
        raise typer.BadParameter(f"{size} is no share")

    with pytest.raises(SystemExit) as ended:
        app(["share", "half"])
    assert ended.value.code == 2
    assert "half is no share" in capsys.readouterr().err
