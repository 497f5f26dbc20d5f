# SPDX-License-Identifier: MIT
"""Base of all commands: one vocabulary, values that are checked before torch is imported, and help in
groups with two examples first.

A preset is quick, default or paper, and `--repeats`, `--resume`, `--data`, `--out`, `--json` and `--quiet` mean the
same everywhere. What a command was once called with still works and is in no help.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from ..errors import did_you_mean
from ._completion import words_of
from ._status import USAGE, say

#: Presets by the names that a command's users may give beside those that it takes.
_PRESETS = {
    "run": {"smoke": "quick", "baselines": "default"},
    "train": {"full": "default"},
    "throughput": {"default": "full", "paper": "full"},
    "ladder": {"default": "full", "paper": "full"},
}
_OWN_PRESETS = {"run": ("fast",)}
_OF_ALL = ("quick", "default", "paper")
_CHECKED = ("preset", "algorithm", "style", "order", "goal")  # options whose words are all that they take

_EXAMPLES = {
    "advise": ("advise bert --preset quick", "advise bert --device cuda"),
    "compare": ("compare before after", "compare old new --across machine --cost-per-hour 2,3 --out page.html"),
    "doctor": ("doctor", "doctor --json"),
    "import": ("import report.ncu-rep", "import trace.json --json"),
    "ladder": ("ladder --preset quick", "ladder --out rungs"),
    "list": ("list", "list --json"),
    "plot": ("plot dnnsuite-runs/bert-*", "plot out --kind monitor --save load.png"),
    "profile": ("profile bert", "profile -- python train.py"),
    "report": ("report out", "report out --out report.html --cost-per-hour 2 --currency EUR"),
    "roofline": ("roofline", "roofline --json"),
    "run": ("run toy_reg --preset quick", "run baselines --repeats 10 --out out"),
    "show": ("show dnnsuite-runs/bert-*", "show out --json"),
    "throughput": ("throughput toy_reg --preset quick", "throughput bert --batch-sizes 1,8,64"),
    "train": ("train --preset quick", "train imagenet-resnet50 --dataroot DATA --resume"),
    "tune": ("tune mobilenet_v3_small --preset quick", "tune bert --algorithm asha --trials 50 --out search"),
    "workflow": ("workflow bert --preset quick", "workflow bert --modes serial,hfta --plan 1,2,4,8"),
}
_GROUPS = {
    "Results": "out resume allow_changed quiet as_json save markdown pdf title hfta_tree save_target evaluate dry_run"
    " show",
    "Data": "data dataroot cold no_loader",
    "Machine": "device devices device_model threads pin require copies alone monitor share cluster cluster_option"
    " workers nodes gpus_per_node timeout",
}
_GROUP_OF = {name: group for group, names in _GROUPS.items() for name in names.split()}
_METAVARS = {"int": "N", "integer": "N", "float": "X", "path": "PATH"}
_TYPES = re.compile(r"<(\w+)[^<>]*>")
_LONGEST_CHOICE = 34


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
        elif flag == "--repeat":
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

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for param in self.params:
            if param.metavar is None:
                param.metavar = _metavar(self.name or "", param)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; refuse values that no command has before it imports what is slow."""
        left = super().parse_args(ctx, in_todays_words(self.name or "", args))
        for name in _CHECKED:
            value = ctx.params.get(name)
            accepted = _accepted(self.name or "", name)
            if isinstance(value, str) and accepted and value not in accepted:
                shown = _shown(self.name or "", name)
                what = f"unknown preset {value!r}" if name == "preset" else f"--{name} {value}"
                say(f"error: {what}; accepted: {', '.join(shown)}{did_you_mean(value, [*shown, *accepted])}")
                raise typer.Exit(USAGE)
        return left

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Name the arguments without braces, which stand for a choice elsewhere."""
        return [re.sub(r"^\{(\S+)\}$", r"\1", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write two examples, then what the command does."""
        if examples := _EXAMPLES.get(self.name or ""):
            with formatter.section("Examples"):
                for example in examples:
                    formatter.write(f"{'':>{formatter.current_indent}}dnnsuite {example}\n")
        super().format_help_text(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options in groups: those of the command first, HFTA's many last."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        groups |= {name: [] for name in _GROUPS}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                own = "Arguments" if param.param_type_name == "argument" else _GROUP_OF.get(param.name or "")
                panel = getattr(param, "rich_help_panel", None)
                groups.setdefault(own or panel or "Options", []).append(_in_words(record))
        for title, records in groups.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _accepted(command: str, name: str) -> list[str]:
    if name == "preset":
        own = _PRESETS.get(command, {})
        return [*_OF_ALL, *own, *own.values(), *_OWN_PRESETS.get(command, ())]
    return words_of(command, name)


def _shown(command: str, name: str) -> list[str]:
    return [*_OF_ALL, *_OWN_PRESETS.get(command, ())] if name == "preset" else words_of(command, name)


def _metavar(command: str, param: Any) -> str | None:
    """Join the words that an option takes; None for one of another type."""
    if getattr(param, "is_flag", False):
        return None
    if param.param_type_name == "argument":
        return f"{(param.name or '').upper()}{'...' if param.nargs == -1 else ''}"
    words = "|".join(_shown(command, param.name or ""))
    return words if words and len(words) <= _LONGEST_CHOICE else None


def _in_words(record: tuple[str, str]) -> tuple[str, str]:
    """Return an option's line of help without Python's names of types, which typer shows."""
    return _TYPES.sub(lambda found: _METAVARS.get(found[1].lower(), "TEXT"), record[0]), record[1]


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
