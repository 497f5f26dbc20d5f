# SPDX-License-Identifier: MIT
"""Files outside docs/ that are pages of the site, and links between all pages.

In the repository a link names a file, so that it works where the files are read. On the site it names the page that is
made of the file.
"""

import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?(?=\))")
_LANGUAGES = {".py": "python", ".sh": "bash"}
_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "notebooks/README.md": "notebooks.md",
    ".ci/matrix.md": "matrix.md",
    "docker/README.md": "docker.md",
    "examples/README.md": "examples/index.md",
    "python/dnnsuite/_fuse/README.md": "internals/tensor.md",
    "cpp/fused/README.md": "internals/operators.md",
}
_SHOWN_BY = {"benchmarks/results": "benchmarks.md", "benchmarks/README.md": "benchmarks.md"}


def copied() -> dict[str, str]:
    """Page of the site by the file it is made of; the README's is written by hand."""
    results = sorted((ROOT / "benchmarks/results").glob("*.md"))
    examples = sorted(path for path in (ROOT / "examples").iterdir() if path.suffix in _LANGUAGES)
    return {
        **{source: page for source, page in _PAGES.items() if source != "README.md"},
        **{f"benchmarks/results/{path.name}": f"results/{path.name}" for path in results},
        **{f"examples/{path.name}": f"examples/{path.stem}.md" for path in examples},
        **{f"notebooks/{path.name}": f"notebooks/{path.stem}.md" for path in (ROOT / "notebooks").glob("*.ipynb")},
    }


def text_of(source: str) -> str:
    """Markdown of a file outside docs/, with its links as they are there; scripts as code."""
    text = (ROOT / source).read_text(encoding="utf-8")
    language = _LANGUAGES.get(Path(source).suffix)
    return f"# {source}\n\n```{language}\n{text}```\n" if language else text


def relinked(markdown: str, source: str, page: str) -> str:
    """Markdown of a file of the repository whose links lead to pages of the site.

    Args:
        markdown: the file's text.
        source: path of the file from the root of the repository.
        page: path of its page from the root of the site.
    """
    pages = {**copied(), **_SHOWN_BY, "README.md": _PAGES["README.md"]}

    def target(link: re.Match[str]) -> str:
        path = os.path.normpath(os.path.join(os.path.dirname(source), link["path"]))
        found = pages.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if found is None:
            return link[0]
        return os.path.relpath(found, os.path.dirname(page) or ".") + (link["anchor"] or "")

    return _LINK.sub(target, markdown)
