# SPDX-License-Identifier: MIT
"""Pages of the notebooks, run from the top on the results that are in the repository, with what their cells show."""

import asyncio
import functools
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import page_links

FOLDER = page_links.ROOT / "notebooks"
# Figures as drawings, whose letters stay sharp on paper.
_FIRST = "%config InlineBackend.figure_formats = ['svg']"
_OWN_RESULTS = re.compile(r"DNNSUITE_[A-Z]+")  # variables by which a notebook shows another run
_TERMINAL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(frozen=True)
class Page:
    """Markdown of a notebook's page, and the files of the figures on it by name."""

    markdown: str
    figures: Mapping[str, bytes] = field(default_factory=dict)


def pages() -> dict[str, Page]:
    """Page of each notebook, by its path in the repository."""
    paths = sorted(FOLDER.glob("*.ipynb"))
    texts = tuple(path.read_text(encoding="utf-8") for path in paths)
    named = zip(paths, _executed_once(texts), strict=True)
    return {f"notebooks/{path.name}": page(notebook, path.stem) for path, notebook in named}


@functools.cache
def _executed_once(texts: tuple[str, ...]) -> list[Any]:
    return asyncio.run(_all_executed(texts))


async def _all_executed(texts: tuple[str, ...]) -> list[Any]:
    return await asyncio.gather(*map(executed, texts))


async def executed(text: str) -> Any:
    """The notebook of this text after all of its cells ran, beside its file as Jupyter runs them.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell fails; it names the cell.
    """
    import nbclient
    import nbformat

    notebook: Any = nbformat.reads(text, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(_FIRST))
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(FOLDER)}})
    environment = {name: value for name, value in os.environ.items() if not _OWN_RESULTS.fullmatch(name)}
    await client.async_execute(env=environment)
    del notebook.cells[0]
    return notebook


def page(notebook: Any, name: str) -> Page:
    """Markdown of a notebook's cells and outputs; `name` begins the names of its figures."""
    parts: list[str] = []
    figures: dict[str, bytes] = {}
    for cell in notebook.cells:
        if cell.cell_type != "code":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            for text, drawing in _shown(output):
                if drawing is not None:
                    figure = f"{name}-{len(figures) + 1}.svg"
                    figures[figure] = drawing
                    text = f"![{_title(parts)}]({figure})"
                parts.append(text)
    return Page("\n\n".join(parts) + "\n", figures)


def _shown(output: Any) -> Iterator[tuple[str, bytes | None]]:
    """(Markdown, drawing) of what a cell shows in one place; a table as HTML, all else as text."""
    if output.output_type == "stream":
        if output.name == "stdout" and (text := _TERMINAL.sub("", output.text).strip()):
            yield f"```text\n{text}\n```", None
        return
    data = output.get("data", {})
    if "image/svg+xml" in data:
        yield "", str(data["image/svg+xml"]).encode()
    elif "text/html" in data:
        yield f'<div class="output">\n{_in_one_block(data["text/html"])}\n</div>', None
    elif text := data.get("text/plain", "").strip():
        yield f"```text\n{text}\n```", None


def _in_one_block(html: str) -> str:
    """HTML without empty lines, which would end it in Markdown; a table of pandas looks like the others of the site."""
    plain = html.replace('<table border="1" class="dataframe">', "<table>").replace(' style="text-align: right;"', "")
    return "\n".join(line for line in plain.splitlines() if line.strip())


def _title(parts: list[str]) -> str:
    """The last heading before a figure, which says what it shows."""
    headings = re.findall(r"^#+ (.*)$", "\n".join(part for part in parts if not part.startswith("```")), re.M)
    return str(headings[-1]) if headings else "figure"
