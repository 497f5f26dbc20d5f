# SPDX-License-Identifier: MIT
"""Base of all commands: one vocabulary, values that are checked before torch is imported, and help in
groups with two examples first.

A preset is quick, default or paper, and `--repeats`, `--resume`, `--data`, `--out`, `--json` and `--quiet` mean the
same everywhere. What a command was once called with still works and is in no help.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from ..errors import did_you_mean
from ..workflow.modes import is_partial
from ._completion import words_of
from ._help import EXAMPLES, GROUPS, HELP, metavar_of
from ._status import USAGE, say

#: Presets by the names that a command's users may give beside those that it takes.
_PRESETS = {
    "run": {"smoke": "quick", "baselines": "default"},
    "train": {"full": "default"},
    "throughput": {"full": "default"},
    "ladder": {"full": "default"},
}
_OWN_PRESETS = {"run": ("fast",)}  # of the suite of 2019
#: Options whose words are all that they take: one, or several with commas.
_CHECKED = (
    "preset", "algorithm", "style", "order", "goal", "device", "data", "method", "precision", "step_on", "cluster",
    "modes", "precisions", "rungs",
)  # fmt: skip
_FILES = ("space", "topology", "against")  # options that name a file to read
_PREFIXES = ("pin exec", "pin run")  # of another command, whose options follow
_OTHER_NAMES = {"gpu": "cuda", "nvidia": "cuda"}
_LISTS = ("modes", "precisions", "rungs")

_GROUP_OF = {name: group for group, names in GROUPS.items() for name in names.split()}
_NUMBERS = {"int": "N", "integer": "N", "float": "X"}
_TYPES = re.compile(r"<(\w+)[^<>]*>")
_LONGEST_CHOICE = 42
_UsageError: Any = typer.BadParameter.__base__  # click's, or that of the click in typer
_DEFAULT = re.compile(r"\s*\[(?:default: )?([^\]]+)\]$")
_BRACKETS = re.compile(r"^\{(.+)\}(?:\.\.\.)?$|^\[(\[.*)\]\.\.\.$")
_AT_LEAST = re.compile(r"; x>=(\d+)$")


def in_todays_words(command: str, arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command as it takes them: old spellings, and the names of presets that all have."""
    found: list[str] = []
    given = list(arguments)
    rest = given[given.index("--") :] if "--" in given else []  # of another program's command line
    given = given[: len(given) - len(rest)]
    while given:
        word = given.pop(0)
        flag, equals, value = word.partition("=")
        if flag == "--quick":
            flag, equals, value = "--preset", "=", "quick"
        elif flag == "--repeat" or (flag == "--rounds" and command == "ladder"):
            flag = "--repeats"
        if flag == "--preset":
            value = value if equals else given.pop(0) if given else ""
            found += [flag, _PRESETS.get(command, {}).get(value, value)]
        elif flag == "--resume":
            following = value if equals else given[0] if given else ""
            named = following in ("auto", "never") or following.endswith(".pt")
            if named and not equals:
                given.pop(0)
            if command == "train":
                found += [flag, following if named or equals else "auto"]
            elif following != "never":
                found.append(flag)
        else:
            found.append(f"{flag}{equals}{value}")
    return found + rest


class Command(TyperCommand):
    """A command of `dnnsuite`."""

    path = ""  # behind `dnnsuite`

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        param: Any
        for param in self.params:
            if param.metavar is None:
                param.metavar = _metavar(self.path, param)
            if param.name in HELP and not param.help:
                text, _, usual = HELP[param.name].partition("  [")
                param.help = f"{text}  [{usual}" if usual and param.default is None else text

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; refuse values that no command has before it imports what is slow."""
        words = in_todays_words(self.path, args)
        try:
            left = super().parse_args(ctx, [*words])
        except _UsageError as error:
            error.message += _with_commas(error.message, words)
            raise
        _refuse(_unknown(self.path, ctx.params))
        return left

    def invoke(self, ctx: Any) -> Any:
        """Run the command, unless it would read directories that do not exist."""
        _refuse(_absent(ctx.params))
        return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Name the arguments without the brackets around those that have some, or without which nothing runs."""
        return [_BRACKETS.sub(r"\1\2", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write two examples, then what the command does."""
        with formatter.section("Examples"):
            for example in EXAMPLES[self.path]:
                formatter.write(f"{'':>{formatter.current_indent}}dnnsuite {example}\n")
        super().format_help_text(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options in groups."""
        for title, records in self.groups(ctx).items():
            with formatter.section(title):
                formatter.write_dl(records)

    def groups(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        """Return by title (what to write, what it is) of the options: those of the command first, HFTA's many last."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        groups |= {name: [] for name in GROUPS}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                argument = param.param_type_name == "argument"
                own = "Arguments" if argument else _GROUP_OF.get(param.name or "")
                panel = getattr(param, "rich_help_panel", None)
                name = param.metavar or "" if argument else _TYPES.sub(_in_words, record[0])
                groups.setdefault(own or panel or "Options", []).append((name, _with_default(record[1])))
        return {title: records for title, records in groups.items() if records}


def add_commands(app: typer.Typer, commands: Mapping[str, Callable[..., Any]], group: str = "") -> None:
    """Add commands by name to `app`, the group of commands called `group`."""
    for name, command in commands.items():
        path = f"{group} {name}".strip()
        context = {"ignore_unknown_options": path in _PREFIXES}
        app.command(name, cls=type("Command", (Command,), {"path": path}), context_settings=context)(command)


def _with_commas(message: str, words: Sequence[str]) -> str:
    """Say how several values of an option are written, if the words behind its first one were too many."""
    found = re.search(r"unexpected extra arguments?.*\((.*)\)", message)
    options = [word for word in words if word.removeprefix("--") in (*_LISTS, "plan")]
    if found is None or not options:
        return ""
    first = words[words.index(options[0]) + 1 :][:1]
    return f"; several values are written with commas: {options[0]} {','.join([*first, *found[1].split()])}"


def _refuse(why: str) -> None:
    if why:
        say(f"error: {why}")
        raise typer.Exit(USAGE)


def _absent(params: Mapping[str, Any]) -> str:
    """Name the first directory of results, or other file to read, that does not exist."""
    for directory in params.get("directories") or ():
        if not (directory.is_dir() or (directory.suffix == ".csv" and directory.is_file())):
            folder = directory.parent
            beside = [each.name for each in folder.iterdir() if each.is_dir()] if folder.is_dir() else []
            return f"{directory}: no such directory{did_you_mean(directory.name, beside)}"
    files = [params[name] for name in _FILES if params.get(name)]
    return next((f"{file}: No such file or directory" for file in files if not Path(file).exists()), "")


def _unknown(command: str, params: Mapping[str, Any]) -> str:
    """Name the first word that its option does not take, with those that it takes."""
    for name in _CHECKED:
        value = params.get(name)
        accepted = _accepted(command, name)
        given = [value] if isinstance(value, str) else value if isinstance(value, (list, tuple)) else []
        words = [word.strip() for each in given for word in (each.split(",") if name in _LISTS else [each])]
        for word in words if accepted else ():
            if word not in accepted and not _is_beyond(command, name, word, params):
                shown = words_of(command, name)
                near = did_you_mean(_OTHER_NAMES.get(word.lower(), word), [*shown, *accepted])
                what = name.removesuffix("s").replace("_", "-")
                return f"unknown {what} {word!r}; accepted: {', '.join(shown)}{near}"
    return _no_target(params.get("until"))


def _no_target(until: str | None) -> str:
    """Refuse a value of --until that is neither `target` nor a number."""
    try:
        float("0" if until in (None, "target") else until)
    except ValueError:
        near = did_you_mean(str(until), ["target"])
        return f"--until {until!r}: accepted are target and a value of the job's metric{near}"
    return ""


def _accepted(command: str, name: str) -> list[str]:
    if name == "preset":
        own = _PRESETS.get(command, {})
        return [*words_of(command, name), *own, *_OWN_PRESETS.get(command, ())]
    return words_of(command, name)


def _is_beyond(command: str, name: str, word: str, params: Mapping[str, Any]) -> bool:
    """True for words that are in no table: a workflow's mode with some units unfused, and the texts of `tune lora`."""
    if (command, name) == ("workflow", "modes"):
        return is_partial(word)
    return (command, name) == ("tune", "data") and params.get("job") == "lora"


def _metavar(command: str, param: Any) -> str | None:
    """Return what stands for the value: the words that an option takes, or a name; None for numbers."""
    if getattr(param, "is_flag", False):
        return None
    if param.param_type_name == "argument":
        return f"{(param.name or '').upper()}{'...' if param.nargs == -1 else ''}"
    words = "|".join(words_of(command, param.name or ""))
    return metavar_of(command, param.name or "", words if len(words) <= _LONGEST_CHOICE else "")


def _in_words(found: re.Match[str]) -> str:
    """Return a metavar for the name of a type of Python's, which typer shows."""
    return _NUMBERS.get(found[1].lower(), "TEXT")


def _with_default(text: str) -> str:
    """Write what an option is without being given in one way, whether typer or the option's own help says it."""
    found = _DEFAULT.search(text)
    if found is None or found[1] == "required":
        return text
    usual = _AT_LEAST.sub(r"; at least \1", found[1])
    return f"{text[: found.start()]}  [default: {usual}]"


_KINDS = {"float_parsing": "a number", "int_parsing": "a whole number", "int_from_float": "a whole number"}


class Commands(TyperGroup):
    """Group of commands whose refusals of a value name it, which typer's do not from 0.29 on."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; `help COMMAND` is its help."""
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            errors = getattr(error.__cause__, "errors", None)
            if errors is not None:  # pydantic's; of others the message names the value
                (first, *_) = errors()
                kind = _KINDS.get(first["type"])
                error.message = (
                    f"{first['input']!r} is not {kind}." if kind else f"{error.message}; got {first['input']!r}."
                )
            raise
