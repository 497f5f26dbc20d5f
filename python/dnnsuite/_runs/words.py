# SPDX-License-Identifier: MIT
"""Values as people write them on a command line or in a file."""

_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})


def truth(word: str) -> bool | None:
    """Return the truth value of a word such as "yes" or "off"; None if it is none."""
    word = word.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else None
