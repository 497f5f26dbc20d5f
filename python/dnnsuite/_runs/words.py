# SPDX-License-Identifier: MIT
"""Values as people write them on a command line or in a file."""

import re

# Control characters of C0 and C1 without tab and line feed, and those that turn the direction of writing.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})


def truth(word: str) -> bool | None:
    """Return the truth value of a word such as "yes" or "off"; None if it is none."""
    word = word.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else None


def printable(text: str) -> str:
    """Return `text` safe for a terminal: control characters other than line ends and tabs become U+FFFD.

    Text from records, files and other programs goes through this before a person sees it.
    """
    return _CONTROL.sub("\ufffd", text)
