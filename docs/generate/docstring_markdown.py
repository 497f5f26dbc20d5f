# SPDX-License-Identifier: MIT
"""Docstrings as Markdown. Examples are code, roles as in :class:`Name` are names in code."""

import re
import textwrap

# From a prompt to the next empty line; blocks that follow each other after one are one.
_EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?!\s*$).*)*(?:\n\s*\n\1>>> .*(?:\n(?!\s*$).*)*)*", re.MULTILINE)


_ROLE = re.compile(r":\w+:`~?(?P<name>[^`]+)`")


def markdown(text: str) -> str:
    """Fence the examples of a docstring, and take the roles off its names; a section `Examples:` stays as it is."""
    text = _ROLE.sub(r"`\g<name>`", text)
    if re.search(r"^Examples?:$", text, re.MULTILINE):
        return text
    return _EXAMPLE.sub(_fence, text)


def _fence(found: re.Match[str]) -> str:
    code = f"```pycon\n{textwrap.dedent(found[0])}\n```"
    return textwrap.indent(code, found["indent"])
