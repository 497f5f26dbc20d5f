# SPDX-License-Identifier: MIT
"""Events of a trace in JSON, one at a time: files of any size in the memory of a few of them."""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from .._files import regular
from ..errors import reason
from ._text import GZIP, BadFile, encoding_of

_CHUNK_BYTES = 1 << 22
_LONGEST_VALUE = 1 << 26  # characters; what is not whole by then is no JSON
_LONGEST_ESCAPE = 6
_ESCAPE = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_SPACE = re.compile(r"[ \t\r\n]*")
_BETWEEN = re.compile(r"[ \t\r\n,]*")


class TraceFile:
    """A trace's events by iteration, once; `about` has the other values of the file, when it has been read.

    Raises:
        BadFile: while it is read: no JSON, a file that is cut, or one without a list of events.
    """

    def __init__(self, path: Path) -> None:
        self.about: dict[str, Any] = {}
        self._path = path
        self._text, self._at = "", 0
        self._lines = 1  # before the text that is held
        self._ended = False
        # As decimals, because a double has too few digits for microseconds since 1970. Names hold tabs as they are.
        self._decode = json.JSONDecoder(parse_float=Decimal, strict=False).raw_decode

    def __iter__(self) -> Iterator[Any]:
        try:
            with gzip.open(self._path) if _is_packed(self._path) else open(self._path, "rb") as self._file:
                first = self._file.read(_CHUNK_BYTES)
                if not first or first.isspace():
                    raise BadFile(self._path, "the file is empty")
                self._decoder = codecs.getincrementaldecoder(encoding_of(first))(errors="replace")
                self._text = self._decoder.decode(first)
                yield from self._whole()
        except (OSError, EOFError, zlib.error) as error:
            raise BadFile(self._path, reason(error)) from error

    def _whole(self) -> Iterator[Any]:
        start = self._next()
        if start == "[":
            self._at += 1
            yield from self._list()
            return
        if start != "{":
            raise self._no_json("the file does not begin with { or [")
        self._at += 1
        found = False
        while self._next(_BETWEEN) == '"':
            key = self._value()
            if self._next() != ":":
                raise self._no_json("a name without a value")
            self._at += 1
            if key == "traceEvents" and self._next() == "[":
                self._at += 1
                yield from self._list()
                found = True
            else:
                self.about[str(key)] = self._value()
        if self._next() != "}":
            raise self._no_json("the object is not closed")
        if not found:
            raise BadFile(self._path, "no list traceEvents: not a trace of torch.profiler")

    def _list(self) -> Iterator[Any]:
        while True:
            match = _BETWEEN.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at == len(self._text):
                if not self._more():
                    raise self._no_json("the list is not closed")
                continue
            if self._text[self._at] == "]":
                self._at += 1
                return
            yield self._value()

    def _next(self, space: re.Pattern[str] = _SPACE) -> str:
        """Return the next character that is no space; "" at the end."""
        while True:
            match = space.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def _value(self) -> Any:
        self._next()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except RecursionError as error:
                raise self._no_json("it is nested too deeply") from error
            except (ValueError, ArithmeticError) as error:
                if "escape" in getattr(error, "msg", "") and self._repair():
                    continue
                if len(self._text) - self._at > _LONGEST_VALUE or not self._more():
                    raise self._no_json(getattr(error, "msg", str(error)), getattr(error, "pos", 0)) from error
            else:
                if end < len(self._text) or self._ended:  # else a number may go on
                    self._at = end
                    return value
                self._more()

    def _repair(self) -> bool:
        """Double the backslashes that escape nothing, as of a Windows path in a name; True if there were any."""
        end = max(self._at, len(self._text) - (0 if self._ended else _LONGEST_ESCAPE))
        rest = _ESCAPE.sub(lambda found: found[0] if found[1] else r"\\", self._text[self._at : end])
        changed = len(rest) != end - self._at
        self._text = self._text[: self._at] + rest + self._text[end:]
        return changed

    def _more(self) -> bool:
        """Read on; what was used is let go. False at the end of the file."""
        if self._ended:
            return False
        chunk = self._file.read(_CHUNK_BYTES)
        self._ended = not chunk
        self._lines += self._text.count("\n", 0, self._at)
        self._text = self._text[self._at :] + self._decoder.decode(chunk, final=self._ended)
        self._at = 0
        return not self._ended

    def _no_json(self, why: str, at: int | None = None) -> BadFile:
        line = self._lines + self._text.count("\n", 0, self._at if at is None else at)
        return BadFile(self._path, f"{why}: no JSON, or the file is cut", line)


def _is_packed(path: Path) -> bool:
    with open(regular(path), "rb") as file:
        return file.read(2) == GZIP
