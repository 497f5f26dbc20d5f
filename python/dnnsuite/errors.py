# SPDX-License-Identifier: MIT
"""Exceptions of this package, and the hint of the nearest name that many of them give."""

import difflib
from collections.abc import Iterable

__all__ = [
    "BadData", "Error", "InvalidArgument", "StaleRecording", "StepCancelled", "Unavailable", "check_choice",
    "did_you_mean", "reason", "some_of",
]  # fmt: skip


class Error(Exception):
    """Base of the package's exceptions."""


class InvalidArgument(Error, ValueError):
    """Raised for an argument that is refused; the message names the value and what is accepted."""


class BadData(InvalidArgument):
    """Raised for a file of a data set that is damaged or of another kind; the message names it."""


class StaleRecording(Error):
    """Raised before a step if an audit finds that its replay no longer equals the eager step.

    The message names the first tensor or Python value that differs. Array, optimizer and Python state are as they were
    before the step, and the StepRunner runs eager steps from then on.
    """


class StepCancelled(Error):
    """Raised for a step that will not be trained: an earlier one failed, or its StepRunner ended first."""


class Unavailable(Error):
    """Raised when something that was requested by name is missing on this machine.

    Args:
        what: the missing thing, and the reason.
        looked_in: places that were searched, as text.
        remedy: advice for the user.
    """

    def __init__(self, what: str, looked_in: str = "", remedy: str = "") -> None:
        self.what, self.looked_in, self.remedy = what, looked_in, remedy
        super().__init__(what, looked_in, remedy)  # the arguments again, so that it survives pickling

    def __str__(self) -> str:
        looked = f" (looked in {self.looked_in})" if self.looked_in else ""
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.what}{looked}{remedy}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the nearest known word, as " (did you mean 'x'?)"; empty where none is near.

    Upper and lower case count as equal, and the last part of a name with dashes is near to all of it.

    >>> did_you_mean("brt", ["bert", "dcgan"])
    " (did you mean 'bert'?)"
    """
    by_lower_case = {name.lower(): name for name in known}
    near = [name for name in by_lower_case if name.endswith(f"-{word.lower()}")]
    near = near or difflib.get_close_matches(word.lower(), by_lower_case, 1, 0.6)
    return f" (did you mean {by_lower_case[near[0]]!r}?)" if near else ""


def check_choice(what: str, value: str, accepted: Iterable[str]) -> None:
    """Raise InvalidArgument for a value that is not in `accepted`, with the nearest one; `what` names the value."""
    accepted = [*accepted]
    if value not in accepted:
        raise InvalidArgument(f"{what} {value!r}; accepted: {', '.join(accepted)}{did_you_mean(value, accepted)}")


def some_of(names: Iterable[str], rest: str = "") -> str:
    """List names for a message, at most eight; `rest` says where the others are.

    >>> some_of("abcdefghij", "`dnnsuite list`")
    'a, b, c, d, e, f, g, h and 2 more (`dnnsuite list`)'
    """
    every = list(names)
    more = f" and {len(every) - 8} more{f' ({rest})' if rest else ''}" if len(every) > 8 else ""
    return ", ".join(every[:8]) + more


def reason(error: BaseException) -> str:
    """Return the message of an error, without the error number and the name of a file.

    >>> reason(FileNotFoundError(2, "No such file or directory", "space.yaml"))
    'No such file or directory'
    """
    return (isinstance(error, OSError) and error.strerror) or str(error)
