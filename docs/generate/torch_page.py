# SPDX-License-Identifier: MIT
"""Page of torch's private names, from the list that the package checks them by."""

from dnnsuite._torch import ATTRIBUTES, NAMES


def page() -> str:
    """Markdown with a row for each name or group of names."""
    return (
        "# Private names of torch\n\nEach private name of torch that the package uses stands in one table, "
        "`python/dnnsuite/_torch/names.py`, with its use and with what is done on a torch that has it no longer. "
        "Importing never fails for the lack of one; `dnnsuite doctor` lists what is lost.\n\n"
        "| name | use | without it |\n|---|---|---|\n"
        + "".join(
            f"| {'<br>'.join(f'`{each}`' for each in name.names)} | {name.use} | {name.without} |\n"
            for name in NAMES.values()
        )
        + "\n## Attributes of torch's objects\n\nUsed where they stand, because torch cannot rename them without "
        "breaking files or other libraries.\n\n| class | attributes | reason |\n|---|---|---|\n"
        + "".join(
            f"| `{each.owner}` | {', '.join(f'`{name}`' for name in each.names)} | {each.reason} |\n"
            for each in ATTRIBUTES
        )
    )
