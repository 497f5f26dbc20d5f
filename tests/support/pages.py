# SPDX-License-Identifier: MIT
"""Pages of the documentation: their snippets, what these print, and where links lead."""

import contextlib
import io
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def name_of(page: Path) -> str:
    """Path of a page from the root of the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[str]:
    """Fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def printed(page: Path) -> list[str]:
    """Run a page's Python from the top, and return the lines that it prints."""
    scope: dict[str, object] = {"__name__": page.stem}
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        for block in blocks(page, "python"):
            exec(compile(block, name_of(page), "exec"), scope)
    return out.getvalue().splitlines()


def promised(page: Path) -> list[str]:
    """Lines that the comments behind its calls of `print` promise."""
    text = "\n".join(blocks(page, "python"))
    return re.findall(r"^\s*(?:print\(.*)?\)  # (.*)$", text, re.MULTILINE)


def links(page: Path) -> list[str]:
    """Targets of its links within the repository, without anchors."""
    return links_in(page.read_text(encoding="utf-8"))


def links_in(markdown: str) -> list[str]:
    """Targets of the relative links of a text, without anchors."""
    text = re.sub(r"^```.*?^```", "", markdown, flags=re.DOTALL | re.MULTILINE)
    return [target for target in re.findall(r"\]\((?!https?:)([^)#\s]*)[^)]*\)", text) if target]
