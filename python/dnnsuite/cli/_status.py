# SPDX-License-Identifier: MIT
"""Exit statuses of the commands, and the lines on standard error that explain them."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import typer

from .._lazy import pandas
from .._runs.interrupts import Interrupted, interruptible
from .._runs.spec import said_of_plugin
from .._runs.words import printable
from ..errors import Error, InvalidArgument
from ._options import declared

FAILED, USAGE, UNDECIDED = 1, 2, 3


def reporting(command: Callable[..., int | None], name: str = "dnnsuite") -> Callable[..., None]:
    """Wrap a command that returns its exit status: errors of the package become one line on stderr and status 2,
    those of a plugin's code one line and status 1. `name` begins the line."""

    @functools.wraps(command)
    def reporting(*args: Any, **kwargs: Any) -> None:
        _open_output()
        try:
            with interruptible():
                status = command(*args, **kwargs)
                sys.stdout.flush()
        except Interrupted as interrupted:
            say(f"interrupted by {interrupted.signal_name}", name)
            status = interrupted.exit_code
        except BrokenPipeError:
            # Let what is still written go nowhere: the reader of a pipe, `head` say, has seen enough.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            status = 0
        except (Error, OSError) as error:
            say(f"error: {error}", name)
            status = USAGE
        except Exception as error:
            if not (said := said_of_plugin(error)):
                raise
            say(f"error: {said}", name)
            status = FAILED
        if status:
            raise typer.Exit(status)

    declared(command, reporting)
    return reporting


def _open_output() -> None:
    """Give a process that was started with its output closed, as by `>&-`, one that keeps nothing."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  # open to the end


def script(name: str, command: Callable[..., None]) -> None:
    """Run a console script of another tool's name. Exit status: 0 ok, 2 usage, or a file that cannot be read; errors
    are one line."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command(help=command.__doc__, context_settings={"help_option_names": ["-h", "--help"]})(
        reporting(command, name)
    )
    app(prog_name=name)


@contextmanager
def keeping(out: Path, file: str, again: str, what: str = "finished runs") -> Iterator[None]:
    """Say, when the runs of a plan in `out` are interrupted or fail, how many it keeps and how to continue."""
    try:
        yield
    except (Interrupted, Error, OSError) as error:
        if not isinstance(error, InvalidArgument) and (out / file).is_file():
            kept = len(list((out / "runs").glob("[!.]*/run.json")))
            say(f"{kept} {what} are kept in {out}; to continue: {again} --resume --out {out}")
        raise


def print_json(value: Any) -> None:
    """Print an object as one line of JSON."""
    print(json.dumps(value, allow_nan=False))


def records(table: pandas.DataFrame) -> list[dict[str, Any]]:
    """Rows of a table as JSON has them: numbers of numpy become Python's, NaN null."""
    found: list[dict[str, Any]] = json.loads(table.to_json(orient="records"))
    return found


def say(text: str, name: str = "dnnsuite") -> None:
    """Print a line on standard error, without what a terminal would obey; `name` begins it."""
    with suppress(OSError, ValueError):  # a screen that is gone ends no run
        print(f"{name}: {printable(text)}", file=sys.stderr)


def tell(text: str) -> None:
    """Print text that has names from files or other programs in it, without what a terminal would obey."""
    print(printable(text))
