# SPDX-License-Identifier: MIT
"""Parameters that commands share, and HFTA's flags of the search for the largest B: a set of them for each mode."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Optional

import typer

from ..workflow.settings import FLAGS, SEARCHED, as_flag

Command = Callable[..., int]


def with_parameters(command: Command, more: Iterable[inspect.Parameter]) -> Command:
    """Give a command further parameters, which it gets as its `**` argument."""
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    every = [*own, *more]

    @functools.wraps(command)
    def run(**given: Any) -> int:
        return command(**given)

    run.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in every}
    return run


def with_search_flags(command: Command) -> Command:
    """Give a command the parameters `hfta_max_num_Bs` and so on, collected in its `**search`."""
    return with_parameters(command, [_parameter(mode, name) for mode in SEARCHED for name in FLAGS])


def _parameter(mode: str, name: str) -> inspect.Parameter:
    kind, meaning = FLAGS[name]
    option = typer.Option(
        as_flag(mode, name), help=f"{meaning}  [preset]", rich_help_panel=f"How many models fit: {mode}"
    )
    annotation = Annotated[Optional[kind], option]  # type: ignore[valid-type]  # noqa: UP045
    return inspect.Parameter(f"{mode}_{name}", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
