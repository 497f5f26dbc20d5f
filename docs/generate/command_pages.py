# SPDX-License-Identifier: MIT
"""Pages of the command line, from what `--help` says."""

import functools
import re
from collections.abc import Iterator
from typing import Any

import typer

from dnnsuite.cli._help import EXAMPLES
from dnnsuite.cli.app import app

_MARKUP = re.compile(r"([\\*_|<>\[\]])")


@functools.cache
def pages() -> dict[str, str]:
    """Markdown of each command, by its name."""
    root: Any = typer.main.get_command(app)
    return {name: page(name, command) for name, command in root.commands.items() if not command.hidden}


def index(made: dict[str, str]) -> str:
    """Page that lists the commands with the first sentence of each."""
    rows = "\n".join(f"| [{name}]({name}.md) | {_summary(text)} |" for name, text in sorted(made.items()))
    return (
        "# Command line\n\n`dnnsuite COMMAND --help` prints what these pages say. Exit status: 0 ok; 1 the thing "
        f"measured failed; 2 usage or environment.\n\n| command | |\n|---|---|\n{rows}\n"
    )


def page(name: str, command: Any) -> str:
    """Markdown of one command; a group has a section for each of its own."""
    return f"# dnnsuite {name}\n\n" + "\n".join(_sections(f"dnnsuite {name}", command, 2))


def _sections(path: str, command: Any, level: int) -> Iterator[str]:
    yield _help(command)
    parts = getattr(command, "commands", {})
    if not parts:
        yield from _usage(path, command)
    for name, part in parts.items():
        yield f"{'#' * level} {path} {name}\n"
        yield from _sections(f"{path} {name}", part, level + 1)


def _usage(path: str, command: Any) -> Iterator[str]:
    context = command.make_context(path, [], resilient_parsing=True)
    examples = "\n".join(f"dnnsuite {example}" for example in EXAMPLES[command.path])
    yield f"```text\n{examples}\n```\n"
    yield f"```text\n{path} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    for title, records in command.groups(context).items():
        yield f"| {title} | |\n|---|---|"
        yield from (f"| `{names}` | {escaped(text)} |" for names, text in records)
        yield ""


def _help(command: Any) -> str:
    paragraphs = (command.help or "").split("\n\n")
    return "\n\n".join(escaped(" ".join(each.replace("\b", "").split())) for each in paragraphs) + "\n"


def escaped(text: str) -> str:
    """Text as Markdown that shows the same characters; what stands between backquotes stays code."""
    pieces = text.split("`")
    pieces[::2] = [_MARKUP.sub(r"\\\1", piece) for piece in pieces[::2]]
    return "`".join(pieces)


def _summary(text: str) -> str:
    return re.split(r"(?<=[.:])\s", text.split("\n\n")[1], maxsplit=1)[0].rstrip(":")
