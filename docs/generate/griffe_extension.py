# SPDX-License-Identifier: MIT
"""Extension of griffe, which reads the docstrings for the reference."""

from typing import Any

import griffe

import docstring_markdown


class DocstringMarkdown(griffe.Extension):
    """Changes the docstring of every object that is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring before it is parsed."""
        if obj.docstring:
            obj.docstring.value = docstring_markdown.markdown(obj.docstring.value)
