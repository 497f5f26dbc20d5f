# SPDX-License-Identifier: MIT
"""Parameters of a command's function as its arguments and options.

A parameter `name: Annotated[Kind, "help"] = value` is an option, and one without a value an argument; a help that all
commands share is in `_help.py`. Typer reads annotations when it runs, on Python 3.10 too, where it wants Optional
spelled out.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Optional, get_args, get_origin

import typer
from typer.models import OptionInfo, ParameterInfo

from ._completion import completing

PRESETS = "quick (minutes on two cores), default, or paper (the sizes of HFTA's published measurements)."

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Number = Optional[int]  # noqa: UP045
Real = Optional[float]  # noqa: UP045
Text = Optional[str]  # noqa: UP045
Texts = Optional[list[str]]  # noqa: UP045
File = Optional[Path]  # noqa: UP045
Files = Optional[list[Path]]  # noqa: UP045

Command = Callable[..., Any]


def declared(command: Command, shown: Command) -> None:
    """Give `shown` the parameters of `command`, declared as typer wants them, and with what completes their values."""
    signature = inspect.signature(command, eval_str=True)
    every = [_declared(command.__name__, parameter) for parameter in signature.parameters.values()]
    shown.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
    shown.__annotations__ = {each.name: each.annotation for each in every}


def _declared(command: str, parameter: inspect.Parameter) -> inspect.Parameter:
    if parameter.annotation is typer.Context:
        return parameter
    kind, given = parameter.annotation, None
    if get_origin(kind) is Annotated:
        kind, given = get_args(kind)
    if isinstance(given, ParameterInfo):
        info = copy.copy(given)
    else:
        info = typer.Argument(help=given) if parameter.default is parameter.empty else typer.Option(help=given)
    if isinstance(info, OptionInfo) and info.default is ...:  # or a bool would get a second flag, and `B` be `--b`
        info.param_decls = (f"--{parameter.name.replace('_', '-')}",)
    info.autocompletion = info.autocompletion or completing(command, parameter.name)
    return parameter.replace(annotation=Annotated[kind, info])


def with_parameters(command: Command, more: Iterable[inspect.Parameter]) -> Command:
    """Give a command further parameters, which it gets as its `**` argument."""
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]

    @functools.wraps(command)
    def run(**given: Any) -> int:
        status: int = command(**given)
        return status

    run.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
    return run


def parameter(name: str, kind: Any, help: Any, default: Any = None) -> inspect.Parameter:
    """Make an option for `with_parameters`."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, help])
