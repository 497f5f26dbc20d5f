# SPDX-License-Identifier: MIT
"""Files that describe a suite: jobs files of mila-iqia/training, as they are, and suite files of TOML.

A jobs file is a JSON list of name, cmd, args and cgroup. A list as the value of an argument stands for one run with
each of its values. Variables in a value are replaced; it is split into words as a shell would, and no shell ever sees
it. A comma before a closing bracket, which JSON forbids and the original's own files have, is overlooked.

A suite file has jobs by name, each with a preset, options and a weight of its own:

    preset = "quick"            # of the jobs that name none

    [[job]]
    name = "gpt"

    [[job]]
    name = "dit"
    preset = "default"
    options = { batch_size = 8, lr = 0.001 }
    weight = 3                  # in the one number of a comparison or a score; 1 where none is given
"""

from __future__ import annotations

import importlib
import itertools
import json
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from .._files import regular
from ..errors import InvalidArgument, Unavailable, did_you_mean, reason, some_of

_KEYS = ("name", "cmd", "args", "cgroup")
_SCOPES = ("student", "all")
_STRAY_COMMA = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])')
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_NAME = re.compile(r"[^\W_][\w.+-]{0,79}", re.ASCII)
_MOST_RUNS = 10_000  # that one entry may stand for
_SHELL = re.compile(r"`|\$\(")


@dataclass(frozen=True)
class Definition:
    """One run that a jobs file asks for.

    Attributes:
        command: the script of the original suite; empty where the file names the job alone.
        arguments: flag → value; a bare flag has the value "".
        scope: `student` (a copy in each share) or `all`; empty where the file leaves it open.
        where: file and line of the entry, for messages; :meth:`at` gives those of an argument.
    """

    index: int  # of the entry in the file, from 1
    name: str
    command: str
    arguments: Mapping[str, Any]
    scope: str
    where: str
    lines: Mapping[str, str]
    preset: str | None = None  # of a suite file, whose options are stronger than any preset; the user's is stronger
    weight: float = 1.0

    def at(self, flag: str) -> str:
        """File and line of an argument."""
        return self.lines.get(flag, self.where)


def read_jobs_file(path: Path) -> list[Definition]:
    """Read the runs that a file asks for, in its order.

    Raises:
        InvalidArgument: it cannot be read or is malformed; the message names file, line and key.
    """
    try:
        text = regular(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path}: {reason(error)}") from error
    clean = _STRAY_COMMA.sub(lambda found: " " if found[0] == "," else found[0], text)  # lengths stay
    reader = _Reader(path, clean)
    return [
        definition
        for index, entry in enumerate(reader.entries(), 1)
        for definition in reader.definitions(index, *entry)
    ]


class _Reader:
    """The text of a file, and where in it things are."""

    def __init__(self, path: Path, text: str) -> None:
        self.path, self.text = path, text

    def fail(self, offset: int, problem: str) -> NoReturn:
        raise InvalidArgument(f"{self.where(offset)}: {problem}")

    def where(self, offset: int) -> str:
        return f"{self.path}:{self.text.count(chr(10), 0, offset) + 1}"

    def entries(self) -> Iterator[tuple[int, int, Any]]:
        """Yield (start, end, value) of each element of the list that the file is."""
        at = self._skip(0)
        if not self.text.startswith("[", at):
            self.fail(at, 'a jobs file is a list: it begins with "["' if self.text.strip() else "the file is empty")
        at = self._skip(at + 1)
        while not self.text.startswith("]", at):
            value, end = self._decode(at)
            yield at, end, value
            at = self._skip(end)
            if self.text.startswith(",", at):
                at = self._skip(at + 1)
            elif not self.text.startswith("]", at):
                self.fail(at, 'expected "," or "]" after a job')
        if self._skip(at + 1) != len(self.text):
            self.fail(self._skip(at + 1), "something follows the list")

    def _skip(self, at: int) -> int:
        while at < len(self.text) and self.text[at].isspace():
            at += 1
        return at

    def _decode(self, at: int) -> tuple[Any, int]:
        try:
            return json.JSONDecoder(object_pairs_hook=_without_repetition).raw_decode(self.text, at)
        except json.JSONDecodeError as error:
            self.fail(min(error.pos, len(self.text)), error.msg)
        except RecursionError:
            self.fail(at, "is nested too deeply")
        except ValueError as error:  # a whole number of more digits than Python reads
            self.fail(at, str(error).partition(";")[0])
        except _RepeatedKey as error:
            self.fail(self._key(error.key, at, len(self.text), last=True), f'key "{error.key}" occurs twice')

    def _key(self, key: str, start: int, end: int, last: bool = False) -> int:
        """Offset of a key between two others."""
        places = [found.start() for found in re.finditer(re.escape(json.dumps(key)) + r"\s*:", self.text[start:end])]
        return start + (places[1 if last and len(places) > 1 else 0] if places else 0)

    def definitions(self, index: int, start: int, end: int, entry: Any) -> Iterator[Definition]:
        """Yield the runs that one entry asks for."""
        if not isinstance(entry, dict):
            self.fail(start, "a job is an object with name, cmd, args and cgroup")
        for key in entry:
            if key not in _KEYS:
                self.fail(self._key(key, start, end), f'unknown key "{key}"; a job has {", ".join(_KEYS)}')
        name = self._text(entry, "name", start, end)
        if not name:
            self.fail(start, 'key "name" is missing')
        if not _NAME.fullmatch(name):
            self.fail(
                self._key("name", start, end),
                f"name {name!r} is used in file names: give at most 80 letters, digits and . _ - +, the first a letter "
                "or a digit",
            )
        scope = self._text(entry, "cgroup", start, end)
        if scope not in ("", *_SCOPES):
            self.fail(self._key("cgroup", start, end), f'key "cgroup" is "{scope}"; accepted: {", ".join(_SCOPES)}')
        arguments = entry.get("args", {})
        if not isinstance(arguments, dict):
            self.fail(self._key("args", start, end), 'key "args" is not an object of flags and values')
        lines = {flag: self.where(self._key(flag, start, end)) for flag in arguments}
        for flag, value in arguments.items():
            if not _plain(value) and not (isinstance(value, list) and value and all(map(_plain, value))):
                self.fail(self._key(flag, start, end), f'key "{flag}" is neither a value nor a list of values')
        command = self._text(entry, "cmd", start, end)
        count = math.prod(len(value) for value in arguments.values() if isinstance(value, list))
        if count > _MOST_RUNS:
            self.fail(start, f"its lists of values stand for {count:,} runs; at most {_MOST_RUNS:,}")
        for chosen in _each(arguments):
            yield Definition(index, name, command, chosen, scope, self.where(start), lines)

    def _text(self, entry: Mapping[str, Any], key: str, start: int, end: int) -> str:
        value = entry.get(key, "")
        if not isinstance(value, str):
            self.fail(self._key(key, start, end), f'key "{key}" is not a text')
        return value


class _RepeatedKey(Exception):
    def __init__(self, key: str) -> None:
        self.key = key


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise _RepeatedKey(key)
    return dict(pairs)


def _plain(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and value == value  # not NaN, which Python's JSON reads


def _each(arguments: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One dictionary for each combination of the values of lists."""
    choices = [value if isinstance(value, list) else [value] for value in arguments.values()]
    for values in itertools.product(*choices):
        yield dict(zip(arguments, values, strict=True))


def expand(text: str, variables: Mapping[str, str], fail: Callable[[str], NoReturn]) -> str:
    """Replace `$NAME` and `${NAME}` in `text`, and take a shell's quotes off.

    `fail` is called with the problem when a variable is unknown or the text asks for more of a shell.
    """
    if _SHELL.search(text):
        fail(f"{text!r} needs a shell to run something; only variables are replaced")

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name not in variables:
            fail(f"{text!r}: no variable {name}; set it in the environment")
        return variables[name]

    replaced = _VARIABLE.sub(value, text)
    try:
        return " ".join(shlex.split(replaced))
    except ValueError as error:
        fail(f"{text!r}: {error}")


_SUITE_KEYS, _JOB_KEYS = ("preset", "job"), ("name", "preset", "options", "weight")


def read_suite(path: Path) -> list[Definition]:
    """Read the jobs that a file asks for, in its order.

    Raises:
        InvalidArgument: the file cannot be read, or an entry is refused; the message names file, job and key.
        Unavailable: this Python cannot read TOML.
    """
    try:
        read = importlib.import_module("tomllib").loads
    except ImportError as error:
        raise Unavailable("tomllib, which reads TOML", "this Python", "use Python 3.11 or newer") from error
    try:
        content = read(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # what is no UTF-8 and what is no TOML are ValueErrors
        raise InvalidArgument(f"{path} cannot be read: {reason(error)}") from error
    _known(content, _SUITE_KEYS, str(path))
    entries = content.get("job")
    if not isinstance(entries, list) or not entries:
        raise InvalidArgument(f"{path} names no job: add a table [[job]] with a name for each")
    found = [_definition(path, i, entry, content.get("preset", "")) for i, entry in enumerate(entries, 1)]
    for i, own in enumerate(found):
        if before := next((each for each in found[:i] if _asked(each) == _asked(own)), None):
            raise InvalidArgument(
                f"{own.where} is {before.where.rpartition(', ')[2]} again: say it once, with a weight"
            )
    return found


def _asked(own: Definition) -> tuple[Any, ...]:
    return own.name, own.preset, sorted(map(repr, own.arguments.items()))


def _definition(path: Path, index: int, entry: Any, preset: Any) -> Definition:
    where = f"{path}, job {index}"
    if isinstance(entry, Mapping):
        _known(entry, _JOB_KEYS, where)
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise InvalidArgument(f"{where}: a name is missing")
    own, options = entry.get("preset", preset), entry.get("options", {})
    if not isinstance(options, Mapping) or not isinstance(own, str):
        raise InvalidArgument(f"{where}: preset is a text, and options are a table of names and values")
    weight = entry.get("weight", 1.0)
    if type(weight) not in (int, float) or not 0 < weight < math.inf:
        raise InvalidArgument(f"{where}: weight is {weight!r}, must be a positive number")
    flags = {f"--{name.replace('_', '-')}": value for name, value in options.items()}
    return Definition(index, entry["name"], "", flags, "", where, {}, own, float(weight))


def _known(content: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
    for key in content:
        if key not in keys:
            raise InvalidArgument(f"{where}: unknown key {key!r}{did_you_mean(key, keys)}; it has {some_of(keys)}")
