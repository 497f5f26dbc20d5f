# SPDX-License-Identifier: MIT
"""Page that lists the examples with what each says about itself."""

import re

import page_links


def index() -> str:
    """Table of the scripts in `examples/`."""
    rows = []
    for source, page in page_links.copied().items():
        if source.startswith("examples/"):
            name = page.removeprefix("examples/")
            rows.append(f"| [{source.removeprefix('examples/')}]({name}) | {about(source)} |")
    return (
        "# Examples\n\nShort scripts for a clone of the repository, as `python examples/sweep_digits.py`. "
        "The tests run them as they are.\n\n| script | |\n|---|---|\n" + "\n".join(rows) + "\n"
    )


def about(source: str) -> str:
    """First paragraph of a script's docstring, or of the comment at its top."""
    text = (page_links.ROOT / source).read_text(encoding="utf-8")
    if source.endswith(".py"):
        (said,) = re.findall(r'"""(.*?)"""', text, re.DOTALL)[:1]
    else:
        said = re.findall(r"^# (.*)$", text, re.MULTILINE)[0]
    return " ".join(said.split("\n\n")[0].split())
