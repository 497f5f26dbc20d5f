# SPDX-License-Identifier: MIT
"""Hooks of mkdocs: pages that nobody writes by hand are made when the site is built."""

import re
from collections.abc import Sequence
from typing import Any

from mkdocs.structure.files import File, Files

import command_pages
import docstring_markdown  # noqa: F401  so that griffe_extension finds it: the path is mkdocs' for this file alone
import job_pages
import member_tables
import notebook_pages
import page_links
import torch_page

_INTERVAL = re.compile(r"\[([\d.]+), ([\d.]+)\](?=.* \|$)", re.MULTILINE)  # of a cell: a narrow column breaks before it

_WIDE = re.compile(r"^\|(?:[-: ]+\|){8,}$", re.MULTILINE)  # the line below the head of a table of many columns


def on_config(config: Any) -> Any:
    """List the pages of jobs, commands, examples and results in the navigation."""
    _fill(config.nav, "Jobs", [f"jobs/{name}.md" for name in job_pages.pages()])
    _fill(config.nav, "Command line", [f"reference/cli/{name}.md" for name in sorted(command_pages.pages())])
    copies = sorted(page_links.copied().values())
    for section in ("multiply", "measure", "see", "reproduce", "internals"):  # pages that mkdocs.yml does not name
        written = sorted(page_links.ROOT.glob(f"docs/{section}/*.md"))
        listed = set(_pages(config.nav))
        more = [f"{section}/{path.name}" for path in written if f"{section}/{path.name}" not in listed]
        _fill(config.nav, section.capitalize(), more)
    _fill(config.nav, "Examples", [page for page in copies if page.startswith("examples/")])
    sources = {page: source for source, page in page_links.copied().items()}
    results = [
        {_short_title(page_links.text_of(sources[page])): page} for page in copies if page.startswith("results/")
    ]
    _fill(config.nav, "Benchmarks", results)
    _fill(config.nav, "Notebooks", [page for page in copies if page.startswith("notebooks/")])
    return config


def _short_title(text: str) -> str:
    """A page's title for the navigation: what comes before its details, six words at the most."""
    title = text.partition("# ")[2].partition("\n")[0]
    return " ".join(re.split(r"[,:;(]", title)[0].split()[:6])


def _pages(nav: Any) -> list[str]:
    """Every page of a navigation, in its order."""
    if isinstance(nav, str):
        return [nav]
    return [page for part in (nav.values() if isinstance(nav, dict) else nav) for page in _pages(part)]


def _fill(nav: list[Any], title: str, pages: Sequence[Any]) -> None:
    """Append pages, or pages by title, to the section of this title, wherever it is."""
    for entry in nav:
        for name, value in entry.items() if isinstance(entry, dict) else ():
            if isinstance(value, list):
                if name == title:
                    value += [page for page in pages if page not in value]
                _fill(value, title, pages)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made."""
    commands = command_pages.pages()
    made: dict[str, str | bytes] = {
        "jobs/index.md": job_pages.index(),
        "reference/cli/index.md": command_pages.index(commands),
        "internals/torch_names.md": torch_page.page(),
        **{f"jobs/{name}.md": text for name, text in job_pages.pages().items()},
        **{f"reference/cli/{name}.md": text for name, text in commands.items()},
    }
    notebooks = notebook_pages.pages()
    for source, page in page_links.copied().items():
        text = notebooks[source].markdown if source in notebooks else page_links.text_of(source)
        made[page] = page_links.relinked(text, source, page)
    for notebook in notebooks.values():
        made |= {f"notebooks/{name}": drawing for name, drawing in notebook.figures.items()}
    for uri, content in made.items():
        if (existing := files.get_file_from_path(uri)) is not None:
            files.remove(existing)
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links to files of the repository into links to their pages, and give wide tables room."""
    uri = page.file.src_uri
    if uri.startswith("reference/"):
        markdown = member_tables.with_tables(markdown)
    if _WIDE.search(markdown):
        page.meta.setdefault("hide", ["toc"])  # its column is theirs
    if page.file.generated_by is None:
        markdown = page_links.relinked(markdown, f"docs/{uri}", uri)
    return _INTERVAL.sub("[\\1,\N{NO-BREAK SPACE}\\2]", markdown)
